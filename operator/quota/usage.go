package quota

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/freshness"
)

// maxUncounted is how many namespaces with unknown usage status.uncounted names.
const maxUncounted = 10

// Usage is the usage of a namespace as its ResourceQuota stores it.
type Usage struct {
	Used corev1.ResourceList
	// Assumed are resources of which Kubernetes counts no usage: that in Used is 0.
	Assumed []corev1.ResourceName
	// ResourceVersion is that of the ResourceQuota, or empty if there is none.
	ResourceVersion string
	// Unknown reports that the namespace may use more than Used: its ResourceQuota is missing or was changed.
	Unknown bool
}

// Settle returns the status of a policy space, computed from the stored usage of its namespaces and from the
// reservations that the API server may still store. unconfirmed are the namespaces whose reservation exceeds the stored
// usage.
//
// A limit is enforced, which means that it is in status.hard, as soon as every namespace has counted the resource, and
// stays enforced from then on. Settle keeps the number of namespaces as it is in the status, and whether its limit is
// enforced.
func Settle(
	space *v1alpha1.PolicySpace, namespaces []string, observed map[string]Usage,
) (status v1alpha1.PolicySpaceStatus, unconfirmed []string) {
	status = *space.Status.DeepCopy()
	hard, objects := Hard(space), Objects(space)
	reservations := map[string]v1alpha1.QuotaReservation{}
	for _, reservation := range status.Reservations {
		reservations[reservation.Namespace] = reservation
	}
	used, counts := corev1.ResourceList{}, map[corev1.ResourceName]int{}
	for name, limit := range hard {
		used[name] = resource.Quantity{Format: limit.Format}
		if name == Namespaces {
			used[name] = status.Used[name]
		}
	}
	status.Reservations, status.Uncounted = nil, nil
	for _, namespace := range namespaces {
		stored, reservation := observed[namespace], reservations[namespace]
		if mayBeStored(reservation, stored) {
			status.Reservations = append(status.Reservations, reservation)
		} else {
			reservation.Used = nil
		}
		if stored.Unknown && len(objects) > 0 && len(status.Uncounted) < maxUncounted {
			status.Uncounted = append(status.Uncounted, namespace)
		}
		exceeds := false
		for name := range objects {
			amount, counted := stored.Used[name]
			if counted {
				counts[name]++
			}
			if reserved := reservation.Used[name]; reserved.Cmp(amount) > 0 {
				amount, exceeds = reserved, true
			}
			total := used[name]
			total.Add(amount)
			used[name] = total
		}
		if exceeds {
			unconfirmed = append(unconfirmed, namespace)
		}
	}
	enforced := corev1.ResourceList{}
	for name, limit := range hard {
		if _, before := status.Hard[name]; before || name != Namespaces && counts[name] == len(namespaces) {
			enforced[name] = limit
		}
	}
	status.Hard, status.Used, status.Quota = nilIfEmpty(enforced), nilIfEmpty(used), summary(used, hard)
	return status, unconfirmed
}

// mayBeStored reports whether the API server may still store the usage of a reservation. Once the ResourceQuota has a
// later version than the one that the reservation is based on, the usage has been stored, or the write failed.
func mayBeStored(reservation v1alpha1.QuotaReservation, stored Usage) bool {
	return reservation.Namespace != "" && !freshness.Newer(stored.ResourceVersion, reservation.Since)
}

func nilIfEmpty(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	return list
}

// Known returns how much a policy space uses of a resource that it limits, and false if that is not known: before all
// namespaces have counted the resource, status.used has the sum over those that have.
func Known(space *v1alpha1.PolicySpace, name corev1.ResourceName) (used resource.Quantity, isKnown bool) {
	used, isKnown = space.Status.Used[name]
	if _, isCounted := space.Status.Hard[name]; name != Namespaces && (!isCounted || len(space.Status.Uncounted) > 0) {
		return resource.Quantity{}, false
	}
	return used, isKnown
}

// summary returns used/hard of each resource, such as cpu: 1/2, pods: 3/5.
func summary(used, hard corev1.ResourceList) string {
	var parts []string
	for _, name := range sortedNames(hard) {
		total, limit := used[name], hard[name]
		parts = append(parts, fmt.Sprintf("%s: %s/%s", name, total.String(), limit.String()))
	}
	return strings.Join(parts, ", ")
}

// Excess returns the resources of which more is used than the limits of a policy space allow, such as pods: 6 of 5, or
// "" if there are none.
func Excess(space *v1alpha1.PolicySpace, status v1alpha1.PolicySpaceStatus) string {
	var parts []string
	hard := Hard(space)
	for _, name := range sortedNames(hard) {
		total, limit := status.Used[name], hard[name]
		if total.Cmp(limit) > 0 {
			parts = append(parts, fmt.Sprintf("%s: %s of %s", name, total.String(), limit.String()))
		}
	}
	return strings.Join(parts, ", ")
}
