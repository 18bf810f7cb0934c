package policyspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A reservation that is not seen to be written expires after reservationTime. It expires later if it was made again.
func TestReservationsExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		known := &knownReservations{}
		keys := func(since string, namespaces ...string) []reservationKey {
			return keysFor(
				[]v1alpha1.QuotaReservation{reserved("a", "1", since), reserved("b", "1", "5"), reserved("c", "1", "5")},
				namespaces)
		}
		expired, remaining := known.expired("s", keys("5", "a", "b"))
		require.Empty(t, expired)
		require.Equal(t, reservationTime, remaining)
		time.Sleep(reservationTime - time.Second)
		_, remaining = known.expired("s", keys("6", "a", "b"))
		require.Equal(t, reservationTime, remaining, "the reservation of a was made again")
		known.expired("other", nil)
		time.Sleep(time.Second)
		expired, remaining = known.expired("s", keys("6", "a", "b"))
		require.Equal(t, []reservationKey{{"b", "5"}}, expired)
		require.Equal(t, reservationTime-time.Second, remaining)
		known.forget("s", expired[0])
		_, remaining = known.expired("s", keys("6", "b"))
		require.Equal(t, reservationTime, remaining, "the reservation of b was ended, and is still in the status")
		_, remaining = known.expired("s", nil)
		require.Zero(t, remaining)
		require.Empty(t, known.since)
	})
}
