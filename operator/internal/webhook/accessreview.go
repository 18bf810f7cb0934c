package webhook

import (
	"context"
	"fmt"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// IsAllowed reports whether a user may do something with a resource.
func IsAllowed(
	ctx context.Context, reviews authorizationv1client.SubjectAccessReviewInterface, user authenticationv1.UserInfo,
	what authorizationv1.ResourceAttributes,
) (bool, error) {
	allowed, err := Review(ctx, reviews, user, authorizationv1.SubjectAccessReviewSpec{ResourceAttributes: &what})
	if err != nil {
		err = fmt.Errorf("review whether user %q may %s: %w", user.Username,
			strings.TrimSpace(what.Verb+" "+what.Resource+" "+what.Name), err)
	}
	return allowed, err
}

// Review reports whether a user may do what a spec says, which has either ResourceAttributes or NonResourceAttributes.
func Review(
	ctx context.Context, reviews authorizationv1client.SubjectAccessReviewInterface, user authenticationv1.UserInfo,
	spec authorizationv1.SubjectAccessReviewSpec,
) (bool, error) {
	spec.User, spec.Groups, spec.UID = user.Username, user.Groups, user.UID
	spec.Extra = map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		spec.Extra[key] = authorizationv1.ExtraValue(values)
	}
	answer, err := reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return answer.Status.Allowed && !answer.Status.Denied, nil
}
