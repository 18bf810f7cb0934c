package quota

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/freshness"
)

// Reserve returns the status of a policy space with a reservation for a change. The reservation of a namespace is the
// usage that it may reach. It only grows here: Confirm and Settle reduce it, when they see a later state of the
// namespace's usage.
func Reserve(space *v1alpha1.PolicySpace, change Change) v1alpha1.PolicySpaceStatus {
	status := *space.Status.DeepCopy()
	hard := Hard(space)
	reserved := corev1.ResourceList{}
	for _, name := range change.Adds() {
		if _, limited := hard[name]; !limited {
			continue
		}
		included := includedUsage(status, change, name)
		reserved[name] = larger(included, change.New[name])
		total := status.Used[name].DeepCopy()
		total.Add(reserved[name])
		total.Sub(included)
		if status.Used == nil {
			status.Used = corev1.ResourceList{}
		}
		status.Used[name] = total
	}
	at := reservationOf(status, change.Namespace)
	if at < 0 {
		at = len(status.Reservations)
		status.Reservations = append(status.Reservations,
			v1alpha1.QuotaReservation{Namespace: change.Namespace, Used: corev1.ResourceList{}})
	}
	// A write that is based on an earlier state fails, so only the latest state matters.
	status.Reservations[at].Since = freshness.Newest(status.Reservations[at].Since, change.Since)
	maps.Copy(status.Reservations[at].Used, reserved)
	status.Quota = summary(status.Used, hard)
	return status
}

// ExceedsUsage reports whether a reservation exceeds a known usage.
func ExceedsUsage(reservation v1alpha1.QuotaReservation, used corev1.ResourceList) bool {
	for name, reserved := range reservation.Used {
		if known := used[name]; reserved.Cmp(known) > 0 {
			return true
		}
	}
	return false
}

// Confirm returns the status of a policy space in which the reservation of a namespace equals its stored usage. That
// usage must be later than the state that the reservation is based on: by then the reserved usage has been stored, or
// cannot be stored any more. Otherwise, and if there is no reservation, Confirm changes nothing.
func Confirm(space *v1alpha1.PolicySpace, namespace string, stored Usage) v1alpha1.PolicySpaceStatus {
	status := *space.Status.DeepCopy()
	at := reservationOf(status, namespace)
	if at < 0 || stored.ResourceVersion != "" &&
		!freshness.Newer(stored.ResourceVersion, status.Reservations[at].Since) {
		return status
	}
	for name, reserved := range status.Reservations[at].Used {
		total := status.Used[name].DeepCopy()
		total.Sub(reserved)
		total.Add(stored.Used[name])
		status.Used[name], status.Reservations[at].Used[name] = total, stored.Used[name]
	}
	status.Reservations[at].Since = stored.ResourceVersion
	status.Quota = summary(status.Used, Hard(space))
	return status
}

// Inherit returns the status of a policy space with the reservations of another one added, whose namespaces count in
// it from now on. If both have a reservation for a namespace, the larger amounts and the later state apply.
func Inherit(space *v1alpha1.PolicySpace, reservations []v1alpha1.QuotaReservation) v1alpha1.PolicySpaceStatus {
	status := *space.Status.DeepCopy()
	for _, other := range reservations {
		at := reservationOf(status, other.Namespace)
		if at < 0 {
			status.Reservations = append(status.Reservations, *other.DeepCopy())
			continue
		}
		own := &status.Reservations[at]
		for name, reserved := range other.Used {
			own.Used[name] = larger(own.Used[name], reserved)
		}
		own.Since = freshness.Newest(own.Since, other.Since)
	}
	return status
}

// reservationOf returns the index of a namespace's reservation, or -1 if it has none.
func reservationOf(status v1alpha1.PolicySpaceStatus, namespace string) int {
	return slices.IndexFunc(status.Reservations, func(r v1alpha1.QuotaReservation) bool {
		return r.Namespace == namespace
	})
}
