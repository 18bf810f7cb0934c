package vetting

import (
	"context"
	"fmt"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/util/workqueue"

	"nstpl.dev/nstpl/operator/internal/webhook"
)

const (
	// maxQuestions bounds what one request makes the API server answer. The ClusterRole admin makes about a thousand.
	maxQuestions = 4096
	// questionsAtOnce are asked at a time.
	questionsAtOnce = 32
)

// author is the user who writes a template. Each question about the user is asked once.
type author struct {
	user    authenticationv1.UserInfo
	reviews authorizationclient.SubjectAccessReviewInterface
	answers map[question]bool
}

func (a *author) String() string { return fmt.Sprintf("user %q", a.user.Username) }

func (a *author) asked() int { return len(a.answers) }

// missing returns those questions that are answered by no, each once. The error says that one could not be asked.
func (a *author) missing(ctx context.Context, questions []question) ([]question, error) {
	var distinct, open, missing []question
	seen := map[question]bool{}
	for _, q := range questions {
		if seen[q] {
			continue
		}
		seen[q] = true
		distinct = append(distinct, q)
		if _, known := a.answers[q]; !known {
			open = append(open, q)
		}
	}
	allowed, errs := make([]bool, len(open)), make([]error, len(open))
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	workqueue.ParallelizeUntil(ctx, questionsAtOnce, len(open), func(i int) {
		if allowed[i], errs[i] = a.ask(ctx, open[i]); errs[i] != nil {
			cancel()
		}
	})
	if i := slices.IndexFunc(errs, func(err error) bool { return err != nil }); i >= 0 {
		return nil, fmt.Errorf("ask whether %s may %s: %w", a, open[i], errs[i])
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("ask for the rights of %s: %w", a, err)
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

func (a *author) ask(ctx context.Context, q question) (bool, error) {
	asked := webhook.ReviewOf(a.user)
	spec := &asked.Spec
	if q.path != "" {
		spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Path: q.path, Verb: q.verb}
	} else {
		spec.ResourceAttributes = q.attributes()
	}
	review, err := a.reviews.Create(ctx, asked, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

func (q question) attributes() *authorizationv1.ResourceAttributes {
	return &authorizationv1.ResourceAttributes{
		Verb: q.verb, Group: q.group, Version: "*", Resource: q.resource, Subresource: q.subresource, Name: q.name,
	}
}

// mayMyself answers a question about the operator.
func (t *Admission) mayMyself(ctx context.Context, q question) (bool, error) {
	review, err := t.clients.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
		&authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: q.attributes()},
		}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether the operator may %s: %w", q, err)
	}
	return review.Status.Allowed, nil
}

func (t *Admission) author(user authenticationv1.UserInfo) *author {
	return &author{
		user: user, reviews: t.clients.AuthorizationV1().SubjectAccessReviews(), answers: map[question]bool{},
	}
}
