package policyspace

import (
	"sync"
	"time"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// reservationKey identifies a reservation in a policy space by its namespace, a name or a UID, and by the
// resourceVersion that it goes on from.
type reservationKey struct{ namespace, since string }

// keysOf returns the keys of reservations of usage.
func keysOf(reservations []v1alpha1.QuotaReservation) []reservationKey {
	keys := make([]reservationKey, 0, len(reservations))
	for _, reservation := range reservations {
		keys = append(keys, reservationKey{reservation.Namespace, reservation.Since})
	}
	return keys
}

// knownReservations remembers since when this replica knows reservations. It is safe for concurrent use. The zero value
// is ready to use.
type knownReservations struct {
	mu sync.Mutex
	// since has the times by policy space.
	since map[string]map[reservationKey]time.Time
}

// update remembers the reservations of a policy space, and forgets its other ones. It returns those that are new.
func (k *knownReservations) update(space string, keys []reservationKey) (added []reservationKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	before, now := k.since[space], make(map[reservationKey]time.Time, len(keys))
	for _, key := range keys {
		at, isKnown := before[key]
		if !isKnown {
			at = time.Now()
			added = append(added, key)
		}
		now[key] = at
	}
	delete(k.since, space)
	if len(now) > 0 {
		if k.since == nil {
			k.since = map[string]map[reservationKey]time.Time{}
		}
		k.since[space] = now
	}
	return added
}

// age returns how long this replica has known a reservation: 0 if it does not know it.
func (k *knownReservations) age(space string, key reservationKey) time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	if at, isKnown := k.since[space][key]; isKnown {
		return time.Since(at)
	}
	return 0
}

func (k *knownReservations) forget(space string, key reservationKey) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.since[space], key)
}
