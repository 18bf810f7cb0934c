package policyspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestReclaimableReservations(t *testing.T) {
	t.Parallel()
	space := countedSpace(resourceList("pods", "9"), resourceList("pods", "6"),
		reserved("written", "2", "5"), reserved("unwritten", "3", "5"), reserved("deleted", "1", "5"))
	used := map[string]corev1.ResourceList{
		"written": resourceList("pods", "2"), "unwritten": resourceList("pods", "1"), "deleted": nil,
	}
	reclaimable := reclaimableReservations(space, used)
	require.Equal(t, space.Status.Reservations[1:], reclaimable)
	without := withoutReservations(space, reclaimable, used)
	require.EqualValues(t, 3, without.Status.Used.Pods().Value())
	require.EqualValues(t, 6, space.Status.Used.Pods().Value())
}

// While the cache contains no written usage, a reservation is left alone for the rest of reclaimTime.
func TestRemainingWriteTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &QuotaAdmission{}
		remember := func(pods string) {
			q.reservations.update("s", keysOf([]v1alpha1.QuotaReservation{reserved("a", pods, "5")}))
		}
		remember("1")
		time.Sleep(reclaimTime / 3)
		remember("2")
		require.Equal(t, reclaimTime-reclaimTime/3, q.remainingWriteTime("s", "a", "5"), "it is the same reservation")
		require.Equal(t, reclaimTime, q.remainingWriteTime("s", "a", "6"))
		require.Equal(t, reclaimTime, q.remainingWriteTime("s", "b", "5"))
		time.Sleep(reclaimTime)
		require.Zero(t, q.remainingWriteTime("s", "a", "5"))
		q.reservations.update("s", nil)
		require.Equal(t, reclaimTime, q.remainingWriteTime("s", "a", "5"))
	})
}
