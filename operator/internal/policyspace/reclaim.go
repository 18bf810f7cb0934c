package policyspace

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/quota"
)

// reclaimTime is how long the API server may take to write reserved usage while another request needs the room.
const reclaimTime = 300 * time.Millisecond

// reclaimRoom is like checkSpace, but ends reservations whose usage the API server has not written for a while, if a
// change needs their room. Otherwise a reservation for a review that the API server did not send would block others. It
// returns the usage of the namespaces whose reservations ended, which the writer of reservations needs.
func (q *QuotaAdmission) reclaimRoom(
	ctx context.Context, space *v1alpha1.PolicySpace, change quota.Change,
) (map[string]quota.Usage, error) {
	err := checkSpace(space, change)
	if _, isExceeded := errors.AsType[*quota.ExceededError](err); !isExceeded {
		return nil, err
	}
	used, errRead := q.usedByReserving(ctx, space)
	if errRead != nil {
		return nil, errRead
	}
	reclaimable := reclaimableReservations(space, used)
	if len(reclaimable) == 0 || checkSpace(withoutReservations(space, reclaimable, used), change) != nil {
		return nil, err
	}
	observed := map[string]quota.Usage{}
	confirmed := space.DeepCopy()
	for _, reservation := range reclaimable {
		namespace := reservation.Namespace
		usageQuota, isRenewed, err := q.endReservation(ctx, space.Name, namespace, reservation.Since)
		if err != nil {
			return nil, err
		}
		if isRenewed && namespace == change.Namespace {
			return nil, outdated(namespace)
		}
		observed[namespace] = quota.Usage{
			Used: usageQuota.Status.Used, ResourceVersion: usageQuota.ResourceVersion,
		}
		confirmed.Status = quota.Confirm(confirmed, namespace, observed[namespace])
	}
	return observed, checkSpace(confirmed, change)
}

// usedByReserving returns the usage of each namespace with a reservation in a policy space, according to the cache.
func (q *QuotaAdmission) usedByReserving(
	ctx context.Context, space *v1alpha1.PolicySpace,
) (map[string]corev1.ResourceList, error) {
	used := make(map[string]corev1.ResourceList, len(space.Status.Reservations))
	for i := range space.Status.Reservations {
		namespace := space.Status.Reservations[i].Namespace
		usageQuota := &corev1.ResourceQuota{}
		if err := q.cached.Get(ctx, usageQuotaKey(namespace), usageQuota); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read ResourceQuota %s of namespace %s: %w", v1alpha1.QuotaName, namespace, err)
		}
		used[namespace] = usageQuota.Status.Used
	}
	return used, nil
}

// reclaimableReservations returns the reservations of a policy space that are larger than the usage of their
// namespaces.
func reclaimableReservations(
	space *v1alpha1.PolicySpace, used map[string]corev1.ResourceList,
) []v1alpha1.QuotaReservation {
	var reclaimable []v1alpha1.QuotaReservation
	for i := range space.Status.Reservations {
		if reservation := space.Status.Reservations[i]; quota.ExceedsUsage(reservation, used[reservation.Namespace]) {
			reclaimable = append(reclaimable, reservation)
		}
	}
	return reclaimable
}

// withoutReservations returns a policy space as it would be if some reservations were replaced by the usage of their
// namespaces.
func withoutReservations(
	space *v1alpha1.PolicySpace, reservations []v1alpha1.QuotaReservation, used map[string]corev1.ResourceList,
) *v1alpha1.PolicySpace {
	without := space.DeepCopy()
	for i := range reservations {
		namespace := reservations[i].Namespace
		without.Status = quota.Confirm(without, namespace, quota.Usage{Used: used[namespace]})
	}
	return without
}

// endReservation waits until the API server has written the usage quota of a namespace after a resourceVersion, which
// ends the reservations that go on from that version. After a while it renews the usage quota itself, so that the API
// server cannot write reserved usage any more. It returns the usage quota, and whether it had to be renewed.
func (q *QuotaAdmission) endReservation(
	ctx context.Context, space, namespace, since string,
) (*corev1.ResourceQuota, bool, error) {
	w := q.writerOf(space)
	w.reclaiming.Lock()
	defer w.reclaiming.Unlock()
	timeout := q.remainingWriteTime(space, namespace, since)
	usageQuota, err := q.waitUsageQuota(ctx, namespace, timeout, func(version string) bool {
		return freshness.Newer(version, since)
	})
	if err != nil || freshness.Newer(usageQuota.ResourceVersion, since) {
		return usageQuota, false, err
	}
	renewed, err := renewUsageQuota(ctx, q.client, namespace)
	if apierrors.IsNotFound(err) {
		return usageQuota, true, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("end the reservation of namespace %s: %w", namespace, err)
	}
	// The next request that holds the lock must find the new version in the cache.
	_, err = q.waitUsageQuota(ctx, namespace, cacheTimeout, func(version string) bool {
		return freshness.AtLeast(version, renewed.ResourceVersion)
	})
	return renewed, true, err
}

// remainingWriteTime returns how much longer the API server may take to write the usage of a reservation.
func (q *QuotaAdmission) remainingWriteTime(space, namespace, since string) time.Duration {
	return max(reclaimTime-q.reservations.age(space, reservationKey{namespace, since}), 0)
}
