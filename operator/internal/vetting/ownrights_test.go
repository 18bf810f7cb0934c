package vetting

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/kubernetes"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// reviewer answers SelfSubjectAccessReviews, and counts them.
type reviewer struct {
	kubernetes.Interface
	authorizationclient.AuthorizationV1Interface
	authorizationclient.SelfSubjectAccessReviewInterface

	allowed bool
	count   int
}

func (r *reviewer) AuthorizationV1() authorizationclient.AuthorizationV1Interface { return r }

func (r *reviewer) SelfSubjectAccessReviews() authorizationclient.SelfSubjectAccessReviewInterface {
	return r
}

func (r *reviewer) Create(
	_ context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SelfSubjectAccessReview, error) {
	r.count++
	review.Status.Allowed = r.allowed
	return review, nil
}

// Rights that the operator holds are reviewed again after a while, and rights that it lacks each time.
func TestRightsAreReviewedAgainAfterAWhile(t *testing.T) {
	t.Parallel()
	const verbs = 5 // that the operator needs for a kind
	clock := clocktesting.NewFakeClock(time.Now())
	reviews := &reviewer{}
	v := &review{Admission: &Admission{
		Options: Options{Clients: reviews}, rights: utilcache.NewExpiringWithClock(clock),
	}}
	configMaps := resolvedKind{resource: corev1.SchemeGroupVersion.WithResource("configmaps")}
	services := resolvedKind{resource: corev1.SchemeGroupVersion.WithResource("services")}

	require.Error(t, v.awaitRights(t.Context(), configMaps))
	require.Equal(t, verbs, reviews.count)
	reviews.allowed = true
	for range 2 {
		require.NoError(t, v.awaitRights(t.Context(), configMaps))
	}
	require.Equal(t, 2*verbs, reviews.count, "not repeated")
	require.NoError(t, v.awaitRights(t.Context(), services))
	require.Equal(t, 3*verbs, reviews.count, "another kind")

	reviews.allowed = false
	clock.Step(rightsTime - 1)
	require.NoError(t, v.awaitRights(t.Context(), configMaps))
	clock.Step(1)
	require.Error(t, v.awaitRights(t.Context(), configMaps))
}
