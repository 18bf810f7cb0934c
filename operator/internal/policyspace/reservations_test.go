package policyspace

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

func TestReserveBatchWritesWhatThereIsRoomFor(t *testing.T) {
	t.Parallel()
	const outdatedA = "the usage of namespace a changed while the request was checked: try again (nstpl:busy)"
	limit := resourceList("pods", "3")
	for name, test := range map[string]struct {
		space *v1alpha1.PolicySpace
		batch []*reservation
		errs  []string
		// used and reservations are in the status that is written; there is none if used is empty.
		used         string
		reservations []v1alpha1.QuotaReservation
	}{
		"room for all": {
			space: countedSpace(limit, resourceList("pods", "1")),
			batch: []*reservation{{change: podsChange("a", "1", "2", "5")}, {change: podsChange("b", "0", "1", "7")}},
			errs:  []string{"", ""}, used: "3",
			reservations: []v1alpha1.QuotaReservation{reserved("a", "2", "5"), reserved("b", "1", "7")},
		},
		"room for the first": {
			space: countedSpace(limit, resourceList("pods", "2")),
			batch: []*reservation{{change: podsChange("a", "1", "2", "5")}, {change: podsChange("b", "1", "2", "7")}},
			errs:  []string{"", `exceeded quota in policyspace "s", requested: pods=4, limit: pods=3, used: pods=3`}, used: "3",
			reservations: []v1alpha1.QuotaReservation{reserved("a", "2", "5")},
		},
		"room for the second, which is smaller": {
			space: countedSpace(limit, resourceList("pods", "2"), reserved("a", "2", "5")),
			batch: []*reservation{{change: podsChange("b", "0", "1", "7")}, {change: podsChange("a", "1", "2", "6")}},
			errs:  []string{"", ""}, used: "3",
			reservations: []v1alpha1.QuotaReservation{reserved("a", "2", "6"), reserved("b", "1", "7")},
		},
		"no room": {
			space: countedSpace(limit, resourceList("pods", "3")),
			batch: []*reservation{{change: podsChange("a", "1", "2", "5")}},
			errs:  []string{`exceeded quota in policyspace "s", requested: pods=4, limit: pods=3, used: pods=3`},
		},
		"room for one of several requests in a change": {
			space: countedSpace(limit, resourceList("pods", "2")),
			batch: []*reservation{{change: podsChange("a", "0", "2", "5")}},
			errs: []string{
				"policyspace s has room for some of the requests that arrived at the same time, but not for all: try again (nstpl:busy)",
			},
		},
		"room for none of several requests in a change": {
			space: countedSpace(limit, resourceList("pods", "3")),
			batch: []*reservation{{change: podsChange("a", "0", "2", "5")}},
			errs:  []string{`exceeded quota in policyspace "s", requested: pods=4, limit: pods=3, used: pods=3`},
		},
		"a resource without a limit": {
			space: countedSpace(resourceList("services", "1"), nil),
			batch: []*reservation{{change: podsChange("a", "0", "2", "5")}},
			errs:  []string{""},
		},
		"room of a reservation that has ended": {
			space: countedSpace(limit, resourceList("pods", "3"), reserved("b", "3", "5")),
			batch: []*reservation{{
				change:   podsChange("a", "0", "1", "7"),
				observed: map[string]quota.Usage{"b": {Used: resourceList("pods", "1"), ResourceVersion: "6"}},
			}},
			errs: []string{""}, used: "2",
			reservations: []v1alpha1.QuotaReservation{reserved("b", "1", "6"), reserved("a", "1", "7")},
		},
		"no room of a reservation that has been made again": {
			space: countedSpace(limit, resourceList("pods", "3"), reserved("b", "3", "8")),
			batch: []*reservation{{
				change:   podsChange("a", "0", "1", "7"),
				observed: map[string]quota.Usage{"b": {Used: resourceList("pods", "1"), ResourceVersion: "6"}},
			}},
			errs: []string{`exceeded quota in policyspace "s", requested: pods=4, limit: pods=3, used: pods=3`},
		},
		"a policy space that does not exist": {
			batch: []*reservation{{change: podsChange("a", "0", "2", "5")}}, errs: []string{outdatedA},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := test.space.DeepCopy()
			status, errs := reserveBatch(test.space, test.batch)
			require.Equal(t, before, test.space, "the policy space may be of a cache")
			require.Equal(t, test.errs, errorStrings(errs))
			if test.used == "" {
				require.Nil(t, status)
				return
			}
			require.Equal(t, test.used, status.Used.Pods().String())
			require.Equal(t, len(test.reservations), len(status.Reservations))
			for i, want := range test.reservations {
				got := status.Reservations[i]
				require.Equal(t, []string{want.Namespace, want.Used.Pods().String(), want.Since},
					[]string{got.Namespace, got.Used.Pods().String(), got.Since})
			}
		})
	}
}

// Usage that a policy space shares with another one is reserved in both, and a denial by the other one counts.
func TestADenialByASharingPolicySpaceCounts(t *testing.T) {
	t.Parallel()
	limit := resourceList("pods", "3")
	stored := storedSpaces{byName: map[string]*v1alpha1.PolicySpace{
		"new": countedSpace(limit, nil), "old": countedSpace(limit, nil),
	}}
	full := errors.New("no room")
	writer := func(shares []v1alpha1.PolicySpaceShare, err error) *reservationWriter {
		w := &reservationWriter{}
		w.batches.Timeout = time.Minute
		w.batches.Write = func(_ context.Context, batch []*reservation) ([]error, error) {
			for _, one := range batch {
				one.shares = shares
			}
			return make([]error, len(batch)), err
		}
		return w
	}
	q := &QuotaAdmission{writers: map[string]*reservationWriter{
		"new": writer([]v1alpha1.PolicySpaceShare{{Name: "old"}}, nil), "old": writer(nil, full),
	}}
	require.ErrorIs(t, q.reserveAll(t.Context(), stored, []string{"new"}, podsChange("a", "0", "1", "5")), full)
	q.writers["old"] = writer(nil, nil)
	require.NoError(t, q.reserveAll(t.Context(), stored, []string{"new"}, podsChange("a", "0", "1", "5")))
}

func TestRoomForSomeOfSeveralRequestsIsDeferred(t *testing.T) {
	t.Parallel()
	err := checkSpace(countedSpace(resourceList("pods", "3"), resourceList("pods", "2")),
		podsChange("a", "0", "2", "5"))
	var deferred *webhook.Deferred
	require.ErrorAs(t, err, &deferred)
}

func TestLimits(t *testing.T) {
	t.Parallel()
	space := countedSpace(resourceList("pods", "3"), nil)
	require.True(t, limits(space, podsChange("a", "0", "1", "5")))
	require.False(t, limits(space, podsChange("a", "1", "1", "5")), "the change adds nothing")
	require.False(t, limits(space, quota.Change{New: resourceList("services", "1")}))
	require.False(t, limits(&v1alpha1.PolicySpace{}, podsChange("a", "0", "1", "5")))
}

func TestKnownReservationsReturnNewOnes(t *testing.T) {
	t.Parallel()
	var known knownReservations
	before := []v1alpha1.QuotaReservation{
		reserved("same", "1", "5"), reserved("later", "1", "5"), reserved("ended", "1", "5"),
	}
	require.Equal(t, keysOf(before), known.update("s", keysOf(before)))
	now := []v1alpha1.QuotaReservation{
		reserved("same", "2", "5"), reserved("later", "2", "6"), reserved("first", "1", "5"),
	}
	require.Equal(t, keysOf(now[1:]), known.update("s", keysOf(now)))
}
