package policyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// unsettledAge is how old a namespace is at most, by the operator's clock, while the API server may not have
	// counted its usage yet.
	unsettledAge = 10 * time.Second
	// countPatience is how long who creates something in it waits at most: as long as what nothing counts is not known
	// to be that. lookAgain is how often it is looked at meanwhile.
	countPatience, uncountedPoll = Uncountable + 2*time.Second, 20 * time.Millisecond
)

// counted returns the policyspaces of a namespace once the API server counts in it what a request creates: what is
// created before is not charged. It waits in a young namespace, where most users are held for as long, and where the
// ResourceQuota is missing or was changed, until it is repaired. The operator does not wait: it counts in a namespace
// after it has populated it.
func (t *Sequencer) counted(
	ctx context.Context, request *webhook.Request, created schema.GroupResource,
) ([]string, error) {
	ns, err := t.quota.namespace(ctx, request.Namespace)
	if err != nil {
		return nil, err
	}
	patience := time.NewTimer(countPatience)
	defer patience.Stop()
	for {
		if request.UserInfo.Username == v1alpha1.OperatorUser || ns.DeletionTimestamp != nil {
			return t.quota.charged(ctx, ns)
		}
		uncounted, err := t.uncounted(ctx, ns, created)
		if err != nil {
			return nil, err
		}
		var waitsFor *webhook.Deferred
		if uncounted == nil {
			spaces, err := t.quota.charged(ctx, ns)
			if !errors.As(err, &waitsFor) {
				return spaces, err
			}
		} else {
			waitsFor = &webhook.Deferred{Message: uncounted.Error(), After: webhook.RetryAfter}
		}
		select {
		case <-time.After(uncountedPoll):
		case <-patience.C:
			return nil, waitsFor
		case <-ctx.Done():
			return nil, waitsFor
		}
		newer := &corev1.Namespace{}
		if t.quota.cached.Get(ctx, client.ObjectKeyFromObject(ns), newer, client.UnsafeDisableDeepCopy) == nil {
			ns = newer
		}
	}
}

// uncounted says what of a resource is not counted in a namespace, or nil. What there may be in every young namespace
// is counted again later.
func (t *Sequencer) uncounted(
	ctx context.Context, ns *corev1.Namespace, created schema.GroupResource,
) (*quota.UncountedError, error) {
	lineage, placed, err := t.lineage(ctx, ns)
	if err != nil {
		return nil, err
	}
	isYoung := time.Since(ns.CreationTimestamp.Time) <= unsettledAge
	if !placed && !isYoung {
		return nil, nil // it moves into them later, with all that it uses then
	}
	counter := &corev1.ResourceQuota{}
	err = t.quota.cached.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: v1alpha1.QuotaName}, counter,
		client.UnsafeDisableDeepCopy)
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("read ResourceQuota %s of namespace %s: %w", v1alpha1.QuotaName, ns.Name, err)
	}
	used := CountedUsage(counter)
	for _, name := range lineage {
		space, err := t.quota.get(ctx, t.quota.cached, name)
		if err != nil {
			return nil, err
		}
		if space == nil {
			continue
		}
		for limit := range quota.Hard(space) {
			if _, counted := used[limit]; (!counted || !placed) && (!isYoung || !quota.Early(limit)) &&
				quota.Requested(limit) == created {
				return &quota.UncountedError{Space: name, Resources: []string{string(limit)}}, nil
			}
		}
	}
	return nil, nil
}

// lineage returns the policyspaces that a namespace is in, or is to be in, and whether it has its place already. What
// has none because something above it is missing, or above itself, is in none, nor is one that a tree leaves alone.
func (t *Sequencer) lineage(ctx context.Context, ns *corev1.Namespace) (names []string, placed bool, err error) {
	if in := hierarchy.SpacesOf(ns); len(in) > 0 || match.OfTheSystem(ns.Name) {
		return in, true, nil
	}
	for at := ns.Labels[v1alpha1.PolicySpaceLabel]; at != ""; {
		space, err := t.quota.get(ctx, t.quota.cached, at)
		if err != nil || space == nil || slices.Contains(names, at) ||
			space.Labels[v1alpha1.TreeLabel] != "" && !hierarchy.MayBeInTree(ns) {
			return nil, false, err
		}
		names, at = append(names, at), space.Spec.Parent
	}
	return names, false, nil
}
