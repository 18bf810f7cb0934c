package constraint

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// Answers about the verb use are kept for a while, as the API server keeps those of a webhook: most pods are of service
// accounts that made one before.
const (
	grantedFor  = 10 * time.Second
	refusedFor  = time.Second
	keptAnswers = 10_000
)

// Grants decide who may use which constraints.
type Grants struct {
	reviews authorizationclient.SubjectAccessReviewInterface
	// current reads the UIDs of the objects that a reference names.
	current func(ctx context.Context, reference scc.Reference) (scc.Identity, error)
	answers *utilcache.LRUExpireCache
}

// NewGrants returns grants that ask the API server about the verb use, and read from it the UIDs of the objects that
// constraints name.
func NewGrants(reviews authorizationclient.SubjectAccessReviewInterface, live client.Reader) *Grants {
	return &Grants{
		reviews: reviews, answers: utilcache.NewLRUExpireCache(keptAnswers),
		current: func(ctx context.Context, reference scc.Reference) (scc.Identity, error) {
			return identity(ctx, live, reference)
		},
	}
}

// by returns by whose right a constraint is used: the service account's, which is asked about first, the requester's,
// or nobody's. With intersection it must be both's, if the pod has a service account.
func (g *Grants) by(
	ctx context.Context, request *webhook.Request, pod *corev1.Pod, constraint *v1alpha1.SecurityContextConstraints,
	intersection bool,
) (string, error) {
	if name := pod.Spec.ServiceAccountName; name != "" {
		account := authenticationv1.UserInfo{
			Username: "system:serviceaccount:" + request.Namespace + ":" + name,
			Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + request.Namespace},
		}
		allowed, err := g.may(ctx, account, request.Namespace, constraint)
		if err != nil || allowed && !intersection {
			return subjectIf(allowed, scc.ServiceAccountSubject), err
		}
		if !allowed && intersection {
			return "", nil
		}
	}
	allowed, err := g.may(ctx, request.UserInfo, request.Namespace, constraint)
	return subjectIf(allowed, scc.UserSubject), err
}

func subjectIf(allowed bool, subject string) string {
	if !allowed {
		return ""
	}
	return subject
}

func (g *Grants) may(
	ctx context.Context, who authenticationv1.UserInfo, namespace string,
	constraint *v1alpha1.SecurityContextConstraints,
) (bool, error) {
	if listed, err := g.listed(ctx, who, constraint); listed || err != nil {
		return listed, err
	}
	key := fmt.Sprintf("%q %q %q %q %q %q", who.Username, who.UID, who.Groups, who.Extra, namespace, constraint.Name)
	if answer, known := g.answers.Get(key); known {
		return answer.(bool), nil
	}
	review := webhook.ReviewOf(who)
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: v1alpha1.VerbUse, Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version,
		Resource: v1alpha1.SecurityContextConstraintses.Resource, Name: constraint.Name, Namespace: namespace,
	}
	answer, err := g.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false,
			fmt.Errorf("ask whether %s may use SecurityContextConstraints %s: %w", who.Username, constraint.Name, err)
	}
	allowed, lifetime := answer.Status.Allowed && !answer.Status.Denied, refusedFor
	if allowed {
		lifetime = grantedFor
	}
	g.answers.Add(key, allowed, lifetime)
	return allowed, nil
}

// listed reports whether users or groups of a constraint name a user. An entry does not count for an object that was
// created anew under a name whose owner was deleted: the operator has yet to remove that entry.
func (g *Grants) listed(
	ctx context.Context, who authenticationv1.UserInfo, constraint *v1alpha1.SecurityContextConstraints,
) (bool, error) {
	named := func(reference scc.Reference, isReference bool) (bool, error) {
		seen, found := scc.Seen(constraint, reference)
		if !isReference || !found {
			return true, nil
		}
		current, err := g.current(ctx, reference)
		return err == nil && !seen.Stale(current), err
	}
	if who.Username != "" && slices.Contains(constraint.Users, who.Username) {
		if listed, err := named(scc.UserReference(who.Username)); listed || err != nil {
			return listed, err
		}
	}
	for _, group := range who.Groups {
		if !slices.Contains(constraint.Groups, group) {
			continue
		}
		if listed, err := named(scc.GroupReference(group)); listed || err != nil {
			return listed, err
		}
	}
	return false, nil
}
