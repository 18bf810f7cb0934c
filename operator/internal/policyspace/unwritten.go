package policyspace

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// reservationTime is how long after it was seen first the API server may write the usage that a reservation is for.
// Then the reservation is ended.
const reservationTime = 5 * time.Second

// unwritten remembers since when reservations are known for which usage has not been written. It is safe for concurrent
// use. The zero value is ready to use.
type unwritten struct {
	mu    sync.Mutex
	since map[reservationKey]time.Time
}

// reservationKey identifies a reservation: version is the resourceVersion of the usage quota that it goes on from.
type reservationKey struct{ space, namespace, version string }

// reservationKeys returns the keys of those reservations of a policy space that are for namespaces.
func reservationKeys(space string, reservations []v1alpha1.QuotaReservation, namespaces []string) []reservationKey {
	var keys []reservationKey
	for _, reservation := range reservations {
		if slices.Contains(namespaces, reservation.Namespace) {
			keys = append(keys, reservationKey{space, reservation.Namespace, reservation.Since})
		}
	}
	return keys
}

// update remembers the unwritten reservations of a policy space, and forgets its other ones. It returns those that have
// expired, and how long until the others have: 0 if there are none.
func (u *unwritten) update(space string, keys []reservationKey) (expired []reservationKey, remaining time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for known := range u.since {
		if known.space == space && !slices.Contains(keys, known) {
			delete(u.since, known)
		}
	}
	for _, key := range keys {
		if u.since == nil {
			u.since = map[reservationKey]time.Time{}
		}
		if _, isKnown := u.since[key]; !isKnown {
			u.since[key] = time.Now()
		}
		if left := reservationTime - time.Since(u.since[key]); left > 0 {
			remaining = max(remaining, left)
		} else {
			expired = append(expired, key)
		}
	}
	return expired, remaining
}

func (u *unwritten) remove(key reservationKey) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.since, key)
}

// endExpired ends the reservations in a status for which the API server has not written usage in time. The usage quotas
// that they go on from are renewed, so that the API server cannot write it any more. It returns how long until the
// other reservations for namespaces expire: 0 if there are none.
func (r *Spaces) endExpired(
	ctx context.Context, space string, status v1alpha1.PolicySpaceStatus, namespaces []string,
) (time.Duration, error) {
	expired, remaining := r.unwritten.update(space, reservationKeys(space, status.Reservations, namespaces))
	for _, key := range expired {
		if _, err := renewUsageQuota(ctx, r.Client, key.namespace); client.IgnoreNotFound(err) != nil {
			return 0, fmt.Errorf("end the reservation of namespace %s: %w", key.namespace, err)
		}
		r.unwritten.remove(key)
	}
	return remaining, nil
}
