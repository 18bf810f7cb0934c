package vetting

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/internal/objects"
)

const (
	// aggregationTime is how long a ClusterRole that is applied together with the template may take to become one of
	// the operator's rules.
	aggregationTime = time.Second
	// aggregationPoll is how often the operator reviews its rights meanwhile.
	aggregationPoll = 100 * time.Millisecond
	// rightsTime is how long the rights on a kind are not reviewed again. If one is taken away meanwhile, the
	// status of the template says which.
	rightsTime = 10 * time.Second
)

// ownRights returns those of the kinds whose objects the operator may populate, and a problem for each of the others.
// It does not review kinds that the cluster does not serve yet: the status of the template reports them later.
func (v *review) ownRights(
	ctx context.Context, kinds []resolvedKind,
) (writable []resolvedKind, problems []error, err error) {
	reviewed := map[schema.GroupVersionResource]bool{}
	for _, kind := range kinds {
		if kind.guessed || reviewed[kind.resource] {
			continue
		}
		reviewed[kind.resource] = true
		err := v.awaitRights(ctx, kind)
		if missing, lacks := errors.AsType[*objects.MissingRule](err); lacks {
			problems = append(problems, missing)
		} else if err != nil {
			return nil, nil, err
		} else {
			writable = append(writable, kind)
		}
	}
	return writable, problems, nil
}

// awaitRights returns nil as soon as the operator may populate objects of a kind. It waits until aggregationTime after
// the request began.
func (v *review) awaitRights(ctx context.Context, kind resolvedKind) error {
	if _, isHeld := v.rights.Get(kind.resource); isHeld {
		return nil
	}
	for {
		err := objects.CheckRights(ctx, v.Clients.AuthorizationV1().SelfSubjectAccessReviews(), kind.resource)
		if err == nil {
			v.rights.Set(kind.resource, nil, rightsTime)
		}
		if _, lacks := errors.AsType[*objects.MissingRule](err); !lacks || !v.isAggregating(ctx) {
			return err
		}
	}
}

// isAggregating waits for aggregationPoll, and reports whether the operator may still be given rights because of a
// ClusterRole that was just applied.
func (v *review) isAggregating(ctx context.Context) bool {
	if time.Since(v.began) > aggregationTime {
		return false
	}
	select {
	case <-time.After(aggregationPoll):
		return true
	case <-ctx.Done():
		return false
	}
}
