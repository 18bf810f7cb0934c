package policyspace

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// reservationTime is how long after it was seen first the API server may write the usage that a reservation is for.
// Then the reservation is ended.
const reservationTime = 5 * time.Second

func keysFor(reservations []v1alpha1.QuotaReservation, namespaces []string) []reservationKey {
	return slices.DeleteFunc(keysOf(reservations), func(key reservationKey) bool {
		return !slices.Contains(namespaces, key.namespace)
	})
}

// expired remembers the unwritten reservations of a policy space, and forgets its other ones. It returns those that
// have expired, and how long until the others have: 0 if there are none.
func (k *knownReservations) expired(
	space string, keys []reservationKey,
) (expired []reservationKey, remaining time.Duration) {
	k.update(space, keys)
	for _, key := range keys {
		if left := reservationTime - k.age(space, key); left > 0 {
			remaining = max(remaining, left)
		} else {
			expired = append(expired, key)
		}
	}
	return expired, remaining
}

// endExpired ends the reservations in a status for which the API server has not written usage in time. The usage quotas
// that they go on from are renewed, so that the API server cannot write it any more. It returns how long until the
// other reservations for namespaces expire: 0 if there are none.
func (r *Spaces) endExpired(
	ctx context.Context, space string, status v1alpha1.PolicySpaceStatus, namespaces []string,
) (time.Duration, error) {
	expired, remaining := r.unwritten.expired(space, keysFor(status.Reservations, namespaces))
	for _, key := range expired {
		if _, err := renewUsageQuota(ctx, r.Client, key.namespace); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("end the reservation of namespace %s: %w", key.namespace, err)
		}
		r.unwritten.forget(space, key)
	}
	return remaining, nil
}
