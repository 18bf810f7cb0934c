// Package quota accounts for the usage of policy spaces, and decides which changes their limits allow. A policy space
// limits the total usage of all namespaces in it and in the policy spaces below it.
//
// The number of namespaces is counted in another way: CheckNamespaces decides about it, and package policyspace counts
// namespaces and reservations for it. The API server counts all other usage. Every namespace below a limit has a
// ResourceQuota that counts and does not limit, and the API server asks before it stores an increase there. The
// accounting of a policy space, in its status, has three numbers for each resource:
//
//   - usage: the amounts that the ResourceQuotas of the namespaces store.
//   - limit: spec.quota.hard of the policy space.
//   - reservation (status.reservations): the usage that a namespace may reach, because an increase was allowed that the
//     API server may not have stored yet.
//
// Check decides whether a change is allowed, Reserve reserves it, Confirm and Settle replace reservations by stored
// usage, and Inherit hands reservations over when a namespace moves. All of them take a PolicySpace and return its new
// status, which the caller must write with the resourceVersion that it read. These invariants hold:
//
//   - status.used is the sum over the namespaces of the larger of reservation and stored usage. It is never too small,
//     so the usage of a policy space never exceeds its limits.
//   - A reservation is based on one version of a ResourceQuota (since). It is dropped once a later version is seen:
//     the API server stores an increase only on top of the version that it counted from.
//   - A limit is enforced once every namespace has counted the resource. Until then Check returns an UncountedError.
package quota

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Unlimited is the limit of each resource in the ResourceQuota of a namespace, which only counts. Policy spaces limit.
var Unlimited = resource.MustParse("1E")

// Counted returns spec.hard of the ResourceQuota that counts for some policy spaces in a namespace: every resource that
// one of them limits, except for Namespaces.
func Counted(lineage []*v1alpha1.PolicySpace) corev1.ResourceList {
	counted := corev1.ResourceList{}
	for _, space := range lineage {
		for name := range Objects(space) {
			counted[name] = Unlimited
		}
	}
	return counted
}

// Hard returns the limits of a policy space, or nil if it has none.
func Hard(space *v1alpha1.PolicySpace) corev1.ResourceList {
	if space.Spec.Quota == nil {
		return nil
	}
	return space.Spec.Quota.Hard
}

// Unreachable returns a warning for each limit of a policy space that usage cannot reach, because an ancestor has
// a lower one. lineage is the policy space and its ancestors, the nearest first.
func Unreachable(lineage []*v1alpha1.PolicySpace) []string {
	var warnings []string
	space := lineage[0]
	hard := Hard(space)
	for _, name := range slices.Sorted(maps.Keys(hard)) {
		limit := hard[name]
		for _, ancestor := range lineage[1:] {
			if lower, isLimited := Hard(ancestor)[name]; isLimited && lower.Cmp(limit) < 0 {
				warnings = append(warnings, fmt.Sprintf(
					"policyspace %s limits %s to %s, but usage reaches the limit %s of its ancestor %s first",
					space.Name, name, limit.String(), lower.String(), ancestor.Name))
				break
			}
		}
	}
	if own := PerCreator(space); own != nil {
		for _, ancestor := range lineage[1:] {
			if lower := PerCreator(ancestor); lower != nil && lower.Hard < own.Hard {
				return append(warnings, fmt.Sprintf(
					"policyspace %s limits the namespaces per creator to %d, but its ancestor %s allows only %d",
					space.Name, own.Hard, ancestor.Name, lower.Hard))
			}
		}
	}
	return warnings
}

// ExceededError reports that a change would exceed the limits of a policy space. Its text is like that of the API
// server for a ResourceQuota, and begins with the innermost quota.
type ExceededError struct {
	Space string
	// Requested is the usage with the change, Limit the limits that it exceeds, and Used the usage without the change.
	Requested, Limit, Used corev1.ResourceList
	// SharedWith are the policy spaces whose usage is counted, too.
	SharedWith []v1alpha1.PolicySpaceShare
	// Inner says which ResourceQuota of the namespace the change exceeds, too, or is empty.
	Inner string
}

// Exceeds returns what the API server would say of a change that exceeds a limit of a ResourceQuota in its namespace,
// or "" if the ResourceQuota has room for it. It considers only resources that the policy space has no room for. A
// ResourceQuota with a scope may not count the object.
func (e *ExceededError) Exceeds(own *corev1.ResourceQuota) string {
	requested, used, limit := corev1.ResourceList{}, corev1.ResourceList{}, corev1.ResourceList{}
	for name, total := range e.Requested {
		hard, isLimited := own.Status.Hard[name]
		if !isLimited || len(own.Spec.Scopes) > 0 || own.Spec.ScopeSelector != nil {
			continue
		}
		added := total.DeepCopy()
		added.Sub(e.Used[name])
		sum := own.Status.Used[name].DeepCopy()
		sum.Add(added)
		if sum.Cmp(hard) > 0 {
			requested[name], used[name], limit[name] = added, own.Status.Used[name], hard
		}
	}
	if len(requested) == 0 {
		return ""
	}
	return fmt.Sprintf("exceeded quota: %s, requested: %s, used: %s, limited: %s", own.Name, format(requested), format(used),
		format(limit))
}

func (e *ExceededError) Error() string {
	inner := ""
	if e.Inner != "" {
		inner = e.Inner + ", and "
	}
	return inner + fmt.Sprintf("exceeded quota in policyspace %q, requested: %s, limit: %s, used: %s", e.Space,
		format(e.Requested), format(e.Limit), format(e.Used))
}

// UncountedError reports that the usage of some resources is not known yet in every namespace of a policy space.
type UncountedError struct {
	Space     string
	Resources []string
}

func (e *UncountedError) Error() string {
	return fmt.Sprintf("usage of %s in policyspace %q is not counted yet: try again in a moment",
		strings.Join(e.Resources, ", "), e.Space)
}

// Change is a change of the usage of one namespace, which the API server is about to store.
type Change struct {
	Namespace string
	// Old is the stored usage, and New the usage with the change.
	Old, New corev1.ResourceList
	// Since is the resourceVersion of the ResourceQuota that stores Old.
	Since string
}

// Adds returns the resources of which the change increases the usage, in ascending order.
func (c Change) Adds() []corev1.ResourceName {
	var increased []corev1.ResourceName
	for _, name := range sortedNames(c.New) {
		before, after := c.Old[name], c.New[name]
		if after.Cmp(before) > 0 {
			increased = append(increased, name)
		}
	}
	return increased
}

// String returns the usage with the change, such as cpu=2,pods=4.
func (c Change) String() string { return format(c.New) }

// Check returns nil if the limits of a policy space allow a change, and otherwise an ExceededError or an
// UncountedError. It considers only resources of which the change increases the usage: a policy space whose usage
// exceeds its limits already still allows changes that add nothing.
func Check(space *v1alpha1.PolicySpace, change Change) error {
	hard := Hard(space)
	exceeded := &ExceededError{
		Space: space.Name, Requested: corev1.ResourceList{}, Limit: corev1.ResourceList{}, Used: corev1.ResourceList{},
		SharedWith: space.Status.SharedWith,
	}
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
		if included := includedUsage(space.Status, change, name); included.Cmp(change.New[name]) < 0 {
			total.Add(change.New[name])
			total.Sub(included)
		}
		if total.Cmp(limit) > 0 {
			exceeded.Requested[name], exceeded.Limit[name], exceeded.Used[name] = total, limit, space.Status.Used[name]
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

// includedUsage returns how much of status.used belongs to the namespace of a change: its reservation, or else its
// stored usage. The sum may have been computed from a higher stored usage than change.Old, and never from a lower one,
// because stored usage increases with reservations only.
func includedUsage(status v1alpha1.PolicySpaceStatus, change Change, name corev1.ResourceName) resource.Quantity {
	for i := range status.Reservations {
		reservation := status.Reservations[i]
		if reserved, ok := reservation.Used[name]; ok && reservation.Namespace == change.Namespace {
			return reserved
		}
	}
	return change.Old[name]
}

func larger(a, b resource.Quantity) resource.Quantity {
	if a.Cmp(b) > 0 {
		return a
	}
	return b
}

func sortedNames(list corev1.ResourceList) []corev1.ResourceName {
	return slices.Sorted(maps.Keys(list))
}

// format returns a list such as cpu=2,pods=4.
func format(list corev1.ResourceList) string {
	parts := make([]string, 0, len(list))
	for _, name := range sortedNames(list) {
		quantity := list[name]
		parts = append(parts, string(name)+"="+quantity.String())
	}
	return strings.Join(parts, ",")
}
