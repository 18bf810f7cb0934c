package constraint

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// recreated is a cache that has a namespace that is being deleted, and a new one of its name after some reads.
type recreated struct {
	client.Reader
	deleted, created *corev1.Namespace
	reads            int
}

func (r *recreated) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if r.reads--; r.reads < 0 {
		r.created.DeepCopyInto(into.(*corev1.Namespace))
		return nil
	}
	r.deleted.DeepCopyInto(into.(*corev1.Namespace))
	return nil
}

// A pod of a namespace that was created again does not get the user IDs of the deleted one.
func TestPodsAreNotGivenTheIDsOfADeletedNamespace(t *testing.T) {
	t.Parallel()
	cached := &recreated{
		deleted: namespace("team-a", 1, map[string]string{v1alpha1.UIDRangeAnnotation: "1000/10"}),
		created: namespace("team-a", 2, map[string]string{v1alpha1.UIDRangeAnnotation: "2000/10"}),
		reads:   3,
	}
	cached.deleted.DeletionTimestamp = new(metav1.Now())
	ranged := named("ranged", func(c *v1alpha1.SecurityContextConstraints) {
		c.RunAsUser.Type, c.Users = v1alpha1.MustRunAsRange, []string{"jane"}
	})
	admission := &Admission{constraints: cacheOf(ranged), namespaces: cached, grants: NewGrants(nil, nil)}
	request := requestFor(admissionv1.Create, "", nil, parse(t, `{spec: {containers: [{name: a, image: a}]}}`))
	request.Revision = ""
	require.NoError(t, admission.Mutate(t.Context(), request))
	pod, err := podOf(request.Object)
	require.NoError(t, err)
	require.Equal(t, int64(2000), *pod.Spec.Containers[0].SecurityContext.RunAsUser)
}
