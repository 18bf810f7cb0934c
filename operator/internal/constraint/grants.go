package constraint

import (
	"context"
	"fmt"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// Answers about the verb use are cached, as the API server caches those of an authorization webhook. Most pods are
// created by service accounts that have just created another one.
const (
	allowedLifetime = 10 * time.Second
	deniedLifetime  = time.Second
	maxAnswers      = 10_000
)

// Grants decides who may use which constraint: the users and groups that the constraint lists, and those who have the
// RBAC verb use on it.
type Grants struct {
	reviews authorizationclient.SubjectAccessReviewInterface
	live    client.Reader
	answers *utilcache.LRUExpireCache
}

// NewGrants returns grants that ask the API server about the verb use. They read from live the UIDs of the objects that
// constraints list.
func NewGrants(reviews authorizationclient.SubjectAccessReviewInterface, live client.Reader) *Grants {
	return &Grants{reviews: reviews, live: live, answers: utilcache.NewLRUExpireCache(maxAnswers)}
}

// mayUseFor reports whether the requester or the service account of a pod may use a constraint. A denial is remembered
// only if it is settled: in a namespace that is being initialized, it may end at any time.
func (g *Grants) mayUseFor(
	ctx context.Context, request *webhook.Request, input *scc.Request, constraint *v1alpha1.SecurityContextConstraints,
	subject string, isSettled bool,
) (bool, error) {
	who := request.UserInfo
	if subject == scc.ServiceAccountSubject {
		account := scc.AccountRequester(request.Namespace, input.Pod.Spec.ServiceAccountName, input.Intersection)
		who = authenticationv1.UserInfo{Username: account.Name, Groups: account.Groups}
	}
	return g.mayUse(ctx, who, request.Namespace, constraint, isSettled)
}

func (g *Grants) mayUse(
	ctx context.Context, who authenticationv1.UserInfo, namespace string,
	constraint *v1alpha1.SecurityContextConstraints, isSettled bool,
) (bool, error) {
	listed, err := isListed(constraint, who, func(reference scc.Reference) (scc.Identity, error) {
		return identity(ctx, g.live, reference)
	})
	if listed || err != nil {
		return listed, err
	}
	key := fmt.Sprintf("%q %q %q %q %q %q", who.Username, who.UID, who.Groups, who.Extra, namespace, constraint.Name)
	if answer, cached := g.answers.Get(key); cached && (isSettled || answer.(bool)) {
		return answer.(bool), nil
	}
	allowed, err := webhook.IsAllowed(ctx, g.reviews, who, authorizationv1.ResourceAttributes{
		Verb: v1alpha1.VerbUse, Group: v1alpha1.GroupVersion.Group, Version: v1alpha1.GroupVersion.Version,
		Resource: v1alpha1.SecurityContextConstraintses.Resource, Name: constraint.Name, Namespace: namespace,
	})
	if err != nil {
		return false, err
	}
	switch {
	case allowed:
		g.answers.Add(key, allowed, allowedLifetime)
	case isSettled:
		g.answers.Add(key, allowed, deniedLifetime)
	}
	return allowed, nil
}

// isListed reports whether the users or groups of a constraint include a user. An entry that names a ServiceAccount or
// a Namespace does not count for an object that was created again after the recorded one was deleted, even before
// References has removed the entry. current returns the UIDs of the objects that an entry names.
func isListed(
	constraint *v1alpha1.SecurityContextConstraints, who authenticationv1.UserInfo,
	current func(scc.Reference) (scc.Identity, error),
) (bool, error) {
	counts := func(reference scc.Reference, isReference bool) (bool, error) {
		recorded, isRecorded := scc.RecordedIdentity(constraint, reference)
		if !isReference || !isRecorded {
			return true, nil
		}
		identity, err := current(reference)
		return err == nil && !recorded.Stale(identity), err
	}
	if who.Username != "" && slices.Contains(constraint.Users, who.Username) {
		if listed, err := counts(scc.UserReference(who.Username)); listed || err != nil {
			return listed, err
		}
	}
	for _, group := range who.Groups {
		if !slices.Contains(constraint.Groups, group) {
			continue
		}
		if listed, err := counts(scc.GroupReference(group)); listed || err != nil {
			return listed, err
		}
	}
	return false, nil
}
