// Package quota decides on the quotas of policyspaces: what a namespace may add to the sum over all namespaces in and
// below a space.
//
// It follows "ResourceQuota" of the Git User Guide. The API server counts, in a ResourceQuota that each namespace under
// a quota has; what it is about to write there is booked in the status of every space above, and refused where a sum
// would exceed a limit.
package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/resourceversion"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Unlimited is the limit of each resource in a namespace's ResourceQuota, which exists to count: the spaces limit.
var Unlimited = resource.MustParse("1E")

// maxUncounted is how many namespaces with unknown usage the status of a space names.
const maxUncounted = 10

// Counted returns the limits of the ResourceQuota of a namespace below some spaces: every resource that one of them
// limits.
func Counted(lineage []*v1alpha1.PolicySpace) corev1.ResourceList {
	counted := corev1.ResourceList{}
	for _, space := range lineage {
		for name := range Hard(space) {
			counted[name] = Unlimited
		}
	}
	return counted
}

// Hard returns the limits of a space, which may be none.
func Hard(space *v1alpha1.PolicySpace) corev1.ResourceList {
	if space.Spec.Quota == nil {
		return nil
	}
	return space.Spec.Quota.Hard
}

// ExceededError says that a space has no room left. Its text is the source's.
type ExceededError struct {
	Space            string
	Requested, Limit corev1.ResourceList
}

func (e *ExceededError) Error() string {
	return fmt.Sprintf("exceeded quota in policyspace %q, requested: %s, limit: %s", e.Space, write(e.Requested),
		write(e.Limit))
}

// UncountedError says that it is not known yet what is used of some resources in all namespaces of a space.
type UncountedError struct {
	Space     string
	Resources []string
}

func (e *UncountedError) Error() string {
	return fmt.Sprintf("the use of %s in policyspace %q is not counted yet: try again in a moment",
		strings.Join(e.Resources, ", "), e.Space)
}

// Change is what the API server is about to write down of what a namespace uses.
type Change struct {
	Namespace string
	Old, New  corev1.ResourceList
	// Since is the resourceVersion of the ResourceQuota that holds Old.
	Since string
}

// Adds returns the resources of which the change uses more, in ascending order.
func (c Change) Adds() []corev1.ResourceName {
	var more []corev1.ResourceName
	for _, name := range names(c.New) {
		before, after := c.Old[name], c.New[name]
		if after.Cmp(before) > 0 {
			more = append(more, name)
		}
	}
	return more
}

// String writes what is used after the change.
func (c Change) String() string { return write(c.New) }

// Check tells whether a space has room for a change: an ExceededError or an UncountedError if not. What is there
// already is no reason to refuse what adds nothing to it.
func Check(space *v1alpha1.PolicySpace, change Change) error {
	hard := Hard(space)
	exceeded := &ExceededError{Space: space.Name, Requested: corev1.ResourceList{}, Limit: corev1.ResourceList{}}
	uncounted := &UncountedError{Space: space.Name}
	for _, name := range change.Adds() {
		limit, limited := hard[name]
		if !limited {
			continue
		}
		if _, counted := space.Status.Hard[name]; !counted || len(space.Status.Uncounted) > 0 {
			uncounted.Resources = append(uncounted.Resources, string(name))
			continue
		}
		total := space.Status.Used[name].DeepCopy()
		if part := partOf(space.Status, change, name); part.Cmp(change.New[name]) < 0 {
			total.Add(change.New[name])
			total.Sub(part)
		}
		if total.Cmp(limit) > 0 {
			exceeded.Requested[name], exceeded.Limit[name] = total, limit
		}
	}
	switch {
	case len(exceeded.Requested) > 0:
		return exceeded
	case len(uncounted.Resources) > 0:
		return uncounted
	}
	return nil
}

// partOf returns how much of the sum is the namespace's of a change: what is booked for it, or what was written down
// when the sum was made. That may have been more than what the change goes on from, and not less: what is written down
// grows by bookings only.
func partOf(status v1alpha1.PolicySpaceStatus, change Change, name corev1.ResourceName) resource.Quantity {
	for i := range status.Bookings {
		if booked, ok := status.Bookings[i].Used[name]; ok && status.Bookings[i].Namespace == change.Namespace {
			return booked
		}
	}
	return change.Old[name]
}

// Book returns the status of a space with a change booked. What is booked only grows: less is believed when it is seen.
func Book(space *v1alpha1.PolicySpace, change Change) v1alpha1.PolicySpaceStatus {
	status := *space.Status.DeepCopy()
	hard := Hard(space)
	booked := corev1.ResourceList{}
	for _, name := range change.Adds() {
		if _, limited := hard[name]; !limited {
			continue
		}
		part := partOf(status, change, name)
		booked[name] = larger(part, change.New[name])
		total := status.Used[name].DeepCopy()
		total.Add(booked[name])
		total.Sub(part)
		if status.Used == nil {
			status.Used = corev1.ResourceList{}
		}
		status.Used[name] = total
	}
	at := slices.IndexFunc(status.Bookings, func(b v1alpha1.QuotaBooking) bool {
		return b.Namespace == change.Namespace
	})
	if at < 0 {
		at = len(status.Bookings)
		status.Bookings = append(status.Bookings,
			v1alpha1.QuotaBooking{Namespace: change.Namespace, Used: corev1.ResourceList{}})
	}
	if older(status.Bookings[at].Since, change.Since) {
		status.Bookings[at].Since = change.Since // a write that goes on from an earlier state fails
	}
	maps.Copy(status.Bookings[at].Used, booked)
	status.Quota = summary(status.Used, hard)
	return status
}

// Beyond reports whether more is booked for a namespace than it is known to use.
func Beyond(booking v1alpha1.QuotaBooking, used corev1.ResourceList) bool {
	for name, booked := range booking.Used {
		if known := used[name]; booked.Cmp(known) > 0 {
			return true
		}
	}
	return false
}

// Confirm returns the status of a space in which what is booked for a namespace is what it is known to use: what was
// booked before is written down, or can't be any more. It changes nothing if the booking goes on from what is seen, or
// from a later state.
func Confirm(space *v1alpha1.PolicySpace, namespace string, seen Observed) v1alpha1.PolicySpaceStatus {
	status := *space.Status.DeepCopy()
	at := slices.IndexFunc(status.Bookings, func(b v1alpha1.QuotaBooking) bool { return b.Namespace == namespace })
	if at < 0 || seen.ResourceVersion != "" && !older(status.Bookings[at].Since, seen.ResourceVersion) {
		return status
	}
	for name, booked := range status.Bookings[at].Used {
		total := status.Used[name].DeepCopy()
		total.Sub(booked)
		total.Add(seen.Used[name])
		status.Used[name], status.Bookings[at].Used[name] = total, seen.Used[name]
	}
	status.Bookings[at].Since = seen.ResourceVersion
	status.Quota = summary(status.Used, Hard(space))
	return status
}

// Inherit returns the status of a space with the bookings of another one, whose namespaces count in it from now on.
func Inherit(space *v1alpha1.PolicySpace, bookings []v1alpha1.QuotaBooking) v1alpha1.PolicySpaceStatus {
	status := *space.Status.DeepCopy()
	for _, other := range bookings {
		at := slices.IndexFunc(status.Bookings, func(b v1alpha1.QuotaBooking) bool {
			return b.Namespace == other.Namespace
		})
		if at < 0 {
			status.Bookings = append(status.Bookings, *other.DeepCopy())
			continue
		}
		own := &status.Bookings[at]
		for name, booked := range other.Used {
			own.Used[name] = larger(own.Used[name], booked)
		}
		if older(own.Since, other.Since) {
			own.Since = other.Since
		}
	}
	return status
}

// Observed is what is written down of what a namespace uses.
type Observed struct {
	Used            corev1.ResourceList
	ResourceVersion string
	// Unknown reports that the namespace may use more than Used says: its ResourceQuota is missing or was changed.
	Unknown bool
}

// Settle returns the status of a space as what is written down in its namespaces has it. What is booked and may still
// be written down stays: open are the namespaces of which it is more than what is written down now.
func Settle(
	space *v1alpha1.PolicySpace, namespaces []string, observed map[string]Observed,
) (status v1alpha1.PolicySpaceStatus, open []string) {
	status = *space.Status.DeepCopy()
	hard := Hard(space)
	bookings := map[string]v1alpha1.QuotaBooking{}
	for _, booking := range status.Bookings {
		bookings[booking.Namespace] = booking
	}
	used, known := corev1.ResourceList{}, map[corev1.ResourceName]int{}
	for name, limit := range hard {
		used[name] = resource.Quantity{Format: limit.Format}
	}
	status.Bookings, status.Uncounted = nil, nil
	for _, namespace := range namespaces {
		seen, booking := observed[namespace], bookings[namespace]
		if booking.Namespace == "" || seen.ResourceVersion != "" && older(booking.Since, seen.ResourceVersion) {
			booking.Used = nil // it is written down by now, or can't be any more
		} else {
			status.Bookings = append(status.Bookings, booking)
		}
		if seen.Unknown && len(hard) > 0 && len(status.Uncounted) < maxUncounted {
			status.Uncounted = append(status.Uncounted, namespace)
		}
		more := false
		for name := range hard {
			now, counted := seen.Used[name]
			if counted {
				known[name]++
			}
			if booked := booking.Used[name]; booked.Cmp(now) > 0 {
				now, more = booked, true
			}
			total := used[name]
			total.Add(now)
			used[name] = total
		}
		if more {
			open = append(open, namespace)
		}
	}
	counted := corev1.ResourceList{}
	for name, limit := range hard {
		if _, before := status.Hard[name]; before || known[name] == len(namespaces) {
			counted[name] = limit
		}
	}
	status.Hard, status.Used, status.Quota = orNil(counted), orNil(used), summary(used, hard)
	return status, open
}

func orNil(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	return list
}

// older tells whether a resourceVersion is older than another one. What can't be compared is.
func older(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err != nil || order < 0
}

// summary writes used/hard for each resource.
func summary(used, hard corev1.ResourceList) string {
	var parts []string
	for _, name := range names(hard) {
		total, limit := used[name], hard[name]
		parts = append(parts, fmt.Sprintf("%s: %s/%s", name, total.String(), limit.String()))
	}
	return strings.Join(parts, ", ")
}

// Over returns what is used beyond the limits, for people, or nothing.
func Over(space *v1alpha1.PolicySpace, status v1alpha1.PolicySpaceStatus) string {
	var parts []string
	hard := Hard(space)
	for _, name := range names(hard) {
		total, limit := status.Used[name], hard[name]
		if total.Cmp(limit) > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s of %s", name, total.String(), limit.String()))
		}
	}
	return strings.Join(parts, ", ")
}

func larger(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

func names(list corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}

func write(list corev1.ResourceList) string {
	parts := make([]string, 0, len(list))
	for _, name := range names(list) {
		quantity := list[name]
		parts = append(parts, string(name)+"="+quantity.String())
	}
	return strings.Join(parts, ",")
}
