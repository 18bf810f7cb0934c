package policyspace

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// When a policy space is renamed, its namespaces move one by one to the policy space with the new name. Meanwhile each
// of the two contains only some of the namespaces, and a limit that both have could be used twice. Therefore a policy
// space shares usage with the one that it replaces: the usage in either is counted in both. While they share usage,
// requests beyond a limit are deferred and not denied, because the namespaces may just as well have moved for good.
const (
	// shareTime is how long two policy spaces share usage after a namespace moved between them.
	shareTime = 30 * time.Second
	// shareRetry is the longest time after which a deferred request is repeated: one side may be empty by then.
	shareRetry = 3 * time.Second
	// replacementAge is how long after its creation a policy space that has namespaces may still replace another one.
	replacementAge = 2 * time.Minute
)

// Share makes the policy spaces that a namespace leaves share usage with those that replace them, before the namespace
// moves. It reports whether the namespace may move now.
func (r *Spaces) Share(ctx context.Context, before, after *corev1.Namespace) (bool, error) {
	for _, replacement := range hierarchy.Replacements(hierarchy.SpacesOf(before), hierarchy.SpacesOf(after)) {
		isDue, err := r.isShareDue(ctx, replacement)
		if err != nil {
			return false, err
		}
		if !isDue {
			continue
		}
		if isShared, err := r.shareBoth(ctx, replacement); err != nil || !isShared {
			return false, err
		}
	}
	return true, nil
}

// isShareDue reports whether two policy spaces have to share usage and do not, or do not for much longer.
func (r *Spaces) isShareDue(ctx context.Context, replacement hierarchy.Replacement) (bool, error) {
	old, err := getSpace(ctx, r.Client, replacement.Old)
	if err != nil {
		return false, err
	}
	entered, err := getSpace(ctx, r.Client, replacement.New)
	if err != nil || entered == nil {
		return false, err
	}
	if i := shareIndex(entered.Status, replacement.Old); i >= 0 {
		return time.Until(entered.Status.SharedWith[i].Until.Time) < shareTime/2, nil
	}
	if !hasQuota(entered) {
		return false, nil // without counting, for each namespace that moves, all that are there already
	}
	return mayReplace(entered, old, len(r.Members.inside(entered.Name))), nil
}

func hasQuota(space *v1alpha1.PolicySpace) bool { return space != nil && len(quota.Objects(space)) > 0 }

// mayReplace reports whether a policy space with so many namespaces may be a new name of another one, from which a
// namespace moves there. A new name is empty or young. The old policy space is deleted, or is nil because it does not
// exist, or has the same limits, or both belong to trees: a tree deletes the old one after all namespaces have moved.
// Otherwise the namespace moves for good, and each of the two counts its own namespaces only.
func mayReplace(space, old *v1alpha1.PolicySpace, namespaces int) bool {
	switch isYoung := time.Since(space.CreationTimestamp.Time) < replacementAge; {
	case !hasQuota(space), namespaces > 0 && !isYoung:
		return false
	case old == nil, old.DeletionTimestamp != nil:
		return true
	case !hasQuota(old):
		return false
	case old.Labels[v1alpha1.TreeLabel] != "" && space.Labels[v1alpha1.TreeLabel] != "":
		return true
	}
	return equality.Semantic.DeepEqual(quota.Objects(old), quota.Objects(space))
}

// shareBoth makes two policy spaces share usage. It reports whether they do.
func (r *Spaces) shareBoth(ctx context.Context, replacement hierarchy.Replacement) (bool, error) {
	if isFresh, err := r.isFresh(ctx); err != nil || !isFresh {
		return false, err
	}
	// The old policy space is written first. Once it shares usage, admission reserves in both. Its earlier reservations
	// are copied.
	old, err := r.share(ctx, replacement.Old, replacement.New, nil)
	if err != nil {
		return false, err
	}
	var reservations []v1alpha1.QuotaReservation
	if old != nil {
		reservations = old.Status.Reservations
	} else if isKnown, err := r.endReservationsOfDeleted(ctx, replacement.Old); err != nil || !isKnown {
		return false, err
	}
	if _, err := r.share(ctx, replacement.New, replacement.Old, reservations); err != nil {
		return false, err
	}
	r.enqueueAfter(0, replacement.Old, replacement.New)
	return true, nil
}

// endReservationsOfDeleted ends the reservations of a policy space that was deleted together with the list of them. It
// reports whether the cache contains all usage that was written before.
func (r *Spaces) endReservationsOfDeleted(ctx context.Context, space string) (bool, error) {
	for _, ns := range r.Members.inside(space) {
		if _, err := renewUsageQuota(ctx, r.Client, ns.Name); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("end the reservations of policyspace %s: %w", space, err)
		}
	}
	r.expireFreshness()
	return wait.PollUntilContextTimeout(ctx, usageDelay, time.Second, true, r.isFresh) == nil, nil
}

// share counts the usage of another policy space in this one, with reservations of the other one. It returns the policy
// space as written, or nil if it does not exist.
func (r *Spaces) share(
	ctx context.Context, name, with string, reservations []v1alpha1.QuotaReservation,
) (*v1alpha1.PolicySpace, error) {
	for {
		space, err := getSpace(ctx, r.Live, name)
		if err != nil || space == nil {
			return nil, err
		}
		space.Status.SharedWith = withShare(space.Status, with, time.Now().Add(shareTime))
		space.Status = quota.Inherit(space, reservations)
		namespaces, observed, err := r.observe(ctx, space)
		if err != nil {
			return nil, err
		}
		space.Status, _ = quota.Settle(space, namespaces, observed)
		err = r.Client.Status().Update(ctx, space)
		switch {
		case err == nil:
			return space, nil
		case apierrors.IsNotFound(err):
			return nil, nil
		case !apierrors.IsConflict(err):
			return nil, fmt.Errorf("share the usage of policyspaces %s and %s: %w", name, with, err)
		}
	}
}

// withShare returns with which policy spaces usage is shared if it is shared with one more, or longer with one.
func withShare(status v1alpha1.PolicySpaceStatus, with string, until time.Time) []v1alpha1.PolicySpaceShare {
	shares := slices.Clone(status.SharedWith)
	if i := shareIndex(status, with); i >= 0 {
		shares[i].Until = metav1.NewTime(until)
		return shares
	}
	return append(shares, v1alpha1.PolicySpaceShare{Name: with, Until: metav1.NewTime(until)})
}

// shareIndex returns the index of a policy space in sharedWith, or -1 if usage is not shared with it.
func shareIndex(status v1alpha1.PolicySpaceStatus, with string) int {
	return slices.IndexFunc(status.SharedWith, func(s v1alpha1.PolicySpaceShare) bool { return s.Name == with })
}

// withoutEnded returns a copy of a policy space without the shares that have ended, and the time until the next one
// ends: 0 if there is none. A share ends when one of the two policy spaces is empty, too: then the limit of the other
// one counts all namespaces.
func withoutEnded(
	stored *v1alpha1.PolicySpace, isEmpty func(space string) bool,
) (space *v1alpha1.PolicySpace, nextEnd time.Duration) {
	var shares []v1alpha1.PolicySpaceShare
	for _, share := range stored.Status.SharedWith {
		remaining := time.Until(share.Until.Time)
		if remaining > 0 && !isEmpty(stored.Name) && !isEmpty(share.Name) {
			shares = append(shares, share)
			nextEnd = sooner(nextEnd, remaining)
		}
	}
	space = stored.DeepCopy()
	space.Status.SharedWith = shares
	return space, nextEnd
}

// isEmpty reports whether no namespace is in or below a policy space, or is about to move there.
func (r *Spaces) isEmpty(space string) bool {
	return len(r.Members.inside(space)) == 0 && len(r.entering(space)) == 0
}

// deferredByShare returns the deferral of a request that exceeds a limit of a policy space which shares usage, and nil
// if it shares none. When the share ends, the request is allowed or denied by the usage in the policy space alone.
func deferredByShare(exceeded *quota.ExceededError) *webhook.Deferred {
	for _, share := range exceeded.SharedWith {
		if left := time.Until(share.Until.Time); left > 0 {
			return webhook.Defer(codes.QuotaExceeded, fmt.Sprintf("%s: until %s, usage in policyspace %q counts too, "+
				"because namespaces move from one to the other: try again", exceeded.Error(),
				share.Until.UTC().Format(time.RFC3339), share.Name), min(left+time.Second, shareRetry))
		}
	}
	return nil
}

// sooner returns the shorter of two waits. A wait of 0 means that there is nothing to wait for.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}
