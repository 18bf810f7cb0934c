package policyspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/quota"
)

// Namespaces of a policyspace that is renamed move one by one into another one. Until all have, neither of the two
// would know what is used in both together. So a space that takes the place of another one shares its usage: what is
// used in either counts in both.
//
// shareTime is how long two policyspaces share usage after a namespace moved between them.
const shareTime = 30 * time.Second

// Share has the policyspaces that a namespace leaves, and those that take their place, share their usage before it
// moves. It reports whether the namespace may move.
func (r *Spaces) Share(ctx context.Context, before, after *corev1.Namespace) (bool, error) {
	for _, replacement := range hierarchy.Replacements(hierarchy.SpacesOf(before), hierarchy.SpacesOf(after)) {
		due, err := r.isShareDue(ctx, replacement)
		if err != nil {
			return false, err
		}
		if !due {
			continue
		}
		if fresh, err := r.isFresh(ctx); err != nil || !fresh {
			return false, err
		}
		// The old one first: what is booked there from then on is booked in the new one too.
		old, err := r.share(ctx, replacement.Old, replacement.New, nil)
		if err != nil {
			return false, err
		}
		var bookings []v1alpha1.QuotaBooking
		if old != nil {
			bookings = old.Status.Bookings
		} else if known, err := r.forgetBookings(ctx, replacement.Old); err != nil || !known {
			return false, err
		}
		if _, err := r.share(ctx, replacement.New, replacement.Old, bookings); err != nil {
			return false, err
		}
		r.countSoon(0, replacement.Old, replacement.New)
	}
	return true, nil
}

// isShareDue reports whether two policyspaces are to share usage, and do not, or not for long any more.
func (r *Spaces) isShareDue(ctx context.Context, replacement hierarchy.Replacement) (bool, error) {
	old, err := getSpace(ctx, r.Client, replacement.Old)
	if err != nil {
		return false, err
	}
	entered, err := getSpace(ctx, r.Client, replacement.New)
	if err != nil || entered == nil {
		return false, err
	}
	if len(quota.Hard(entered)) == 0 && (old == nil || len(quota.Hard(old)) == 0) {
		return false, nil
	}
	if at := shareAt(entered.Status, replacement.Old); at >= 0 {
		return time.Until(entered.Status.SharedWith[at].Until.Time) < shareTime/2, nil
	}
	inside, err := r.inside(ctx, entered.Name)
	return MayReplace(entered, len(inside)), err
}

// forgetBookings has the bookings of a policyspace that was deleted forgotten: nobody knows them any more. It reports
// whether the cache knows what was written down before.
func (r *Spaces) forgetBookings(ctx context.Context, space string) (bool, error) {
	inside, err := r.inside(ctx, space)
	if err != nil {
		return false, err
	}
	for _, ns := range inside {
		if _, err := RenewCounter(ctx, r.Client, ns.Name); client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("have bookings of policyspace %s forgotten: %w", space, err)
		}
	}
	r.mu.Lock()
	r.fresh = false
	r.mu.Unlock()
	return wait.PollUntilContextTimeout(ctx, countDelay, time.Second, true, r.isFresh) == nil, nil
}

// share has what is used in another policyspace count in one. It returns what was written, or nil if the policyspace
// does not exist.
func (r *Spaces) share(
	ctx context.Context, name, with string, bookings []v1alpha1.QuotaBooking,
) (*v1alpha1.PolicySpace, error) {
	for {
		space, err := getSpace(ctx, r.Live, name)
		if err != nil || space == nil {
			return nil, err
		}
		until := metav1.NewTime(time.Now().Add(shareTime))
		if at := shareAt(space.Status, with); at >= 0 {
			space.Status.SharedWith[at].Until = until
		} else {
			space.Status.SharedWith = append(space.Status.SharedWith,
				v1alpha1.PolicySpaceShare{Name: with, Until: until})
		}
		space.Status = quota.Inherit(space, bookings)
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

func shareAt(status v1alpha1.PolicySpaceStatus, with string) int {
	return slices.IndexFunc(status.SharedWith, func(s v1alpha1.PolicySpaceShare) bool { return s.Name == with })
}

// withoutEnded returns a policyspace that does not share usage any longer than it is to, and how long it shares what is
// left: 0 if nothing.
func withoutEnded(stored *v1alpha1.PolicySpace) (*v1alpha1.PolicySpace, time.Duration) {
	var left []v1alpha1.PolicySpaceShare
	var sharing time.Duration
	for _, share := range stored.Status.SharedWith {
		if remaining := time.Until(share.Until.Time); remaining > 0 {
			left = append(left, share)
			if sharing == 0 || remaining < sharing {
				sharing = remaining
			}
		}
	}
	space := stored.DeepCopy()
	space.Status.SharedWith = left
	return space, sharing
}

// members returns the namespaces that count in a policyspace: those in and below it, those that are about to move
// there, and those of policyspaces that it shares usage with.
func (r *Spaces) members(ctx context.Context, space *v1alpha1.PolicySpace) ([]*corev1.Namespace, error) {
	found := map[string]*corev1.Namespace{}
	for _, name := range withShares(space) {
		inside, err := r.inside(ctx, name)
		if err != nil {
			return nil, err
		}
		entering, err := r.entering(ctx, name)
		if err != nil {
			return nil, err
		}
		for _, ns := range slices.Concat(inside, entering) {
			found[ns.Name] = ns
		}
	}
	members := make([]*corev1.Namespace, 0, len(found))
	for _, name := range slices.Sorted(maps.Keys(found)) {
		members = append(members, found[name])
	}
	return members, nil
}

// placeIndex finds namespaces by the policyspaces that they are in by their depth labels, and those whose own label
// says that they move.
const (
	placeIndex  = "policyspace"
	insidePlace = "inside/"
	moving      = "moving"
)

func indexPlaces(object client.Object) []string {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return nil
	}
	var places []string
	for _, space := range hierarchy.SpacesOf(ns) {
		places = append(places, insidePlace+space)
	}
	space := ns.Labels[v1alpha1.PolicySpaceLabel]
	if space != "" && len(places) > 0 && !slices.Contains(places, insidePlace+space) && !match.OfTheSystem(ns.Name) {
		places = append(places, moving)
	}
	return places
}

// inside returns the namespaces in and below a policyspace, as their depth labels say it.
func (r *Spaces) inside(ctx context.Context, space string) ([]*corev1.Namespace, error) {
	return r.namespaces(ctx, insidePlace+space)
}

// entering returns the namespaces that are to be in or below a policyspace, and have no depth label yet that says so:
// they, or a policyspace above them, were moved just now.
func (r *Spaces) entering(ctx context.Context, space string) ([]*corev1.Namespace, error) {
	r.mu.Lock()
	lineage, _ := r.forest.Lineage(space) // none if it is broken: then nothing moves there
	below, children := r.forest.Below(space), r.forest.Children(space)
	r.mu.Unlock()
	if len(lineage) == 0 {
		return nil, nil
	}
	candidates, err := r.namespaces(ctx, moving)
	if err != nil {
		return nil, err
	}
	for _, child := range children {
		inside, err := r.inside(ctx, child)
		if err != nil {
			return nil, err
		}
		candidates = append(candidates, inside...)
	}
	return slices.DeleteFunc(candidates, func(ns *corev1.Namespace) bool {
		_, placed := ns.Labels[hierarchy.DepthLabel(space)]
		return placed || !below[ns.Labels[v1alpha1.PolicySpaceLabel]]
	}), nil
}

func (r *Spaces) namespaces(ctx context.Context, place string) ([]*corev1.Namespace, error) {
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.MatchingFields{placeIndex: place},
		client.UnsafeDisableDeepCopy); err != nil {
		return nil, err
	}
	found := make([]*corev1.Namespace, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, &list.Items[i])
	}
	return found, nil
}

// withShares returns the name of a policyspace and of those that it shares usage with.
func withShares(object client.Object) []string {
	names := []string{object.GetName()}
	if space, ok := object.(*v1alpha1.PolicySpace); ok {
		for _, share := range space.Status.SharedWith {
			names = append(names, share.Name)
		}
	}
	return names
}

// chargedBy returns the policyspaces that a namespace's usage counts in.
func chargedBy(ctx context.Context, from client.Reader, ns *corev1.Namespace) ([]string, error) {
	return hierarchy.Charged(ns, func(name string) (*v1alpha1.PolicySpace, error) { return getSpace(ctx, from, name) })
}

// getSpace returns a policyspace, or nil if it does not exist. One of a cache is not to be changed.
func getSpace(ctx context.Context, from client.Reader, name string) (*v1alpha1.PolicySpace, error) {
	space := &v1alpha1.PolicySpace{}
	err := from.Get(ctx, client.ObjectKey{Name: name}, space, client.UnsafeDisableDeepCopy)
	switch {
	case err == nil:
		return space, nil
	case apierrors.IsNotFound(err):
		return nil, nil
	}
	return nil, fmt.Errorf("read policyspace %s: %w", name, err)
}
