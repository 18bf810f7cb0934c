package vetting

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/workqueue"

	"nstpl.dev/nstpl/operator/internal/webhook"
)

const (
	// maxReviews limits the SubjectAccessReviews of one request. The ClusterRole admin needs about a thousand.
	maxReviews = 4096
	// maxConcurrentReviews limits how many of them are under way at a time.
	maxConcurrentReviews = 32
)

// author is the user who writes a template. The API server reviews each right of the user once.
type author struct {
	user    authenticationv1.UserInfo
	reviews authorizationclient.SubjectAccessReviewInterface
	// answers are those to the rights that were reviewed.
	answers map[right]bool
}

// rightsProblem is a problem that an author with more rights would not have.
type rightsProblem struct{ error }

func (a *author) String() string { return fmt.Sprintf("user %q", a.user.Username) }

// missing returns the rights that the author does not hold in all namespaces, each once.
func (a *author) missing(ctx context.Context, rights []right) ([]right, error) {
	var distinct, open, missing []right
	seen := map[right]bool{}
	for _, q := range rights {
		if seen[q] {
			continue
		}
		seen[q] = true
		distinct = append(distinct, q)
		if _, reviewed := a.answers[q]; !reviewed {
			open = append(open, q)
		}
	}
	allowed, errs := make([]bool, len(open)), make([]error, len(open))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workqueue.ParallelizeUntil(ctx, maxConcurrentReviews, len(open), func(i int) {
		if allowed[i], errs[i] = a.review(ctx, open[i]); errs[i] != nil {
			cancel()
		}
	})
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, fmt.Errorf("review whether %s may %s: %w", a, open[i], errs[i])
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("review the rights of %s: %w", a, err)
	}
	for i, q := range open {
		a.answers[q] = allowed[i]
	}
	for _, q := range distinct {
		if !a.answers[q] {
			missing = append(missing, q)
		}
	}
	return missing, nil
}

// review asks the API server whether the author holds a right.
func (a *author) review(ctx context.Context, r right) (bool, error) {
	spec := authorizationv1.SubjectAccessReviewSpec{}
	if r.path != "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: r.path, Verb: r.verb}
	} else {
		spec.ResourceAttributes = r.attributes()
	}
	return webhook.Review(ctx, a.reviews, a.user, spec)
}

// attributes returns the right as SubjectAccessReviews name it. The right must not have a path.
func (r right) attributes() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Verb: r.verb, Group: r.group, Version: "*", Resource: r.resource, Subresource: r.subresource, Name: r.name,
		Namespace: r.namespace,
	}
}

// author returns the author of a template whose rights have not been reviewed yet.
func (a *Admission) author(user authenticationv1.UserInfo) *author {
	return &author{
		user: user, reviews: a.Clients.AuthorizationV1().SubjectAccessReviews(), answers: map[right]bool{},
	}
}
