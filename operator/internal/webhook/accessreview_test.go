package webhook

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// answers gives one answer, and has the last question.
type answers struct {
	authorizationclient.SubjectAccessReviewInterface
	status authorizationv1.SubjectAccessReviewStatus
	asked  authorizationv1.SubjectAccessReviewSpec
}

func (a *answers) Create(
	_ context.Context, review *authorizationv1.SubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SubjectAccessReview, error) {
	a.asked = review.Spec
	return &authorizationv1.SubjectAccessReview{Status: a.status}, nil
}

// An authorizer may decide by everything that is known of a user, and deny what another one allows.
func TestAccessIsReviewedForTheWholeUser(t *testing.T) {
	t.Parallel()
	what := authorizationv1.ResourceAttributes{Verb: "patch", Resource: "policyspaces"}
	for want, status := range map[bool][]authorizationv1.SubjectAccessReviewStatus{
		true:  {{Allowed: true}},
		false: {{}, {Denied: true}, {Allowed: true, Denied: true}},
	} {
		for _, s := range status {
			reviews := &answers{status: s}
			isAllowed, err := IsAllowed(t.Context(), reviews, authenticationv1.UserInfo{
				Username: "jane", UID: "7", Groups: []string{"devs"},
				Extra: map[string]authenticationv1.ExtraValue{"scopes": {"a"}},
			}, what)
			require.NoError(t, err)
			require.Equal(t, want, isAllowed, s)
			require.Equal(t, authorizationv1.SubjectAccessReviewSpec{
				User: "jane", UID: "7", Groups: []string{"devs"}, ResourceAttributes: &what,
				Extra: map[string]authorizationv1.ExtraValue{"scopes": {"a"}},
			}, reviews.asked)
		}
	}
}
