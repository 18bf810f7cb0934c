package policyspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// countedTimeout is the longest time a create request waits until the API server counts its resource. After it,
	// all resources are counted or known to be uncountable.
	countedTimeout = uncountableTime + 2*time.Second
	countedPoll    = 20 * time.Millisecond
	// chargedAge is the age of a usage quota from which on all API servers are taken to know it. A busy one may see it
	// later than the operator, and stores objects until then without charging for them.
	chargedAge = 300 * time.Millisecond
)

// waitCounted returns the policy spaces in which the usage of a namespace is counted, once the API server charges the
// namespace for the created resource. It does not charge for objects that are created earlier. A request waits in a new
// namespace, where most users have to wait for the initializers anyway, and in one whose usage quota is missing or was
// changed, until the operator has repaired it. The operator's own requests do not wait: the API server counts what it
// populates afterwards.
func (s *Sequencer) waitCounted(
	ctx context.Context, request *webhook.Request, created schema.GroupResource,
) ([]string, error) {
	ns, err := s.quota.getNamespace(ctx, request.Namespace)
	if err != nil {
		return nil, err
	}
	timeout := time.NewTimer(countedTimeout)
	defer timeout.Stop()
	for {
		switch {
		case request.UserInfo.Username == v1alpha1.OperatorUser:
			return s.quota.chargedBy(ctx, ns)
		case ns.DeletionTimestamp != nil: // the API server has not known it yet, and refuses the next request
			return nil, webhook.Defer(codes.QuotaUncounted,
				fmt.Sprintf("namespace %s is being deleted", ns.Name), webhook.RetryAfter)
		}
		spaces, err := s.countedSpaces(ctx, ns, created)
		deferred, isDeferred := errors.AsType[*webhook.Deferred](err)
		if !isDeferred {
			return spaces, err
		}
		select {
		case <-time.After(countedPoll):
		case <-timeout.C:
			return nil, deferred
		case <-ctx.Done():
			return nil, deferred
		}
		current := &corev1.Namespace{}
		if s.quota.cached.Get(ctx, client.ObjectKeyFromObject(ns), current, client.UnsafeDisableDeepCopy) == nil {
			ns = current
		}
	}
}

// countedSpaces returns the policy spaces in which the usage of a namespace is counted, or a webhook.Deferred if the
// API server does not charge the namespace for a resource yet.
func (s *Sequencer) countedSpaces(
	ctx context.Context, ns *corev1.Namespace, created schema.GroupResource,
) ([]string, error) {
	uncounted, err := s.uncounted(ctx, ns, created)
	if err != nil {
		return nil, err
	}
	if uncounted != nil {
		return nil, webhook.Defer(codes.QuotaUncounted, uncounted.Error(), webhook.RetryAfter)
	}
	return s.quota.chargedBy(ctx, ns)
}

// uncounted returns which limit of a resource the API server does not charge a namespace for, or nil.
func (s *Sequencer) uncounted(
	ctx context.Context, ns *corev1.Namespace, created schema.GroupResource,
) (*quota.UncountedError, error) {
	lineage, isPlaced, err := s.lineage(ctx, ns)
	if err != nil {
		return nil, err
	}
	isSettling := time.Since(ns.CreationTimestamp.Time) <= settlingAge
	if !isPlaced && !isSettling {
		return nil, nil // its whole usage is counted when it is placed
	}
	usageQuota := &corev1.ResourceQuota{}
	err = s.quota.cached.Get(ctx, usageQuotaKey(ns.Name), usageQuota, client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ResourceQuota %s of namespace %s: %w", v1alpha1.QuotaName, ns.Name, err)
	}
	var used corev1.ResourceList
	if isPlaced {
		used = countedUsage(usageQuota)
	}
	for _, name := range lineage {
		space, err := getSpace(ctx, s.quota.cached, name)
		if err != nil {
			return nil, err
		}
		if space == nil {
			continue
		}
		counted := used
		if isSettling && isRecent(usageQuota) && !quota.HasRoom(space, created, maxSimultaneous) {
			counted = nil
		}
		if uncounted := uncountedLimit(space, counted, created, isSettling); uncounted != nil {
			return uncounted, nil
		}
	}
	return nil, nil
}

// isRecent reports whether an API server may not have seen a usage quota that the operator has seen.
func isRecent(usageQuota *corev1.ResourceQuota) bool {
	return time.Since(recountedAt(usageQuota)) < chargedAge
}

// uncountedLimit returns a limit of a policy space to which a created object adds and that is missing in the counted
// usage of the namespace, or nil if there is none. In a settling namespace, resources of which Kubernetes or templates
// create objects in every namespace may be uncounted: they are counted a second time.
func uncountedLimit(
	space *v1alpha1.PolicySpace, used corev1.ResourceList, created schema.GroupResource, isSettling bool,
) *quota.UncountedError {
	for limit := range quota.Objects(space) {
		if quota.Requested(limit) != created || isSettling && quota.MayPrecedeCounting(limit) {
			continue
		}
		if _, isCounted := used[limit]; !isCounted {
			return &quota.UncountedError{Space: space.Name, Resources: []string{string(limit)}}
		}
	}
	return nil
}

// lineage returns the policy spaces that contain a namespace or will contain it, and whether the namespace has its
// depth labels already.
func (s *Sequencer) lineage(ctx context.Context, ns *corev1.Namespace) (names []string, isPlaced bool, err error) {
	if spaces := hierarchy.SpacesOf(ns); len(spaces) > 0 || match.IsSystemNamespace(ns.Name) {
		return spaces, true, nil
	}
	names, err = hierarchy.DestinationOf(ns, gettingSpaces(ctx, s.quota.cached))
	return names, false, err
}
