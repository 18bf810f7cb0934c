package policyspace

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

func TestDecisionOf(t *testing.T) {
	t.Parallel()
	change := podsChange("a", "3", "4", "5")
	require.Equal(t, decision{since: "5"}, decisionOf(change, nil))
	require.Equal(t, decision{since: "5", used: "pods=4", denied: true}, decisionOf(change, &quota.ExceededError{}))
	require.Equal(t, decision{since: "5", used: "pods=4", denied: true, contended: true},
		decisionOf(change, outdated("a")))
}

// A denial is recorded once, and other ResourceQuotas are counted again only if they may have been charged.
func TestDenials(t *testing.T) {
	t.Parallel()
	exceeded := &quota.ExceededError{
		Space: "s", Requested: resourceList("pods", "4"), Limit: resourceList("pods", "3"),
	}
	other := errors.New("timeout")
	for name, test := range map[string]struct {
		err                  error
		mayBeCharged, dryRun bool
		isDenied             bool
		events, recounts     int
	}{
		"allowed": {mayBeCharged: true},
		"exceeded": {
			err: exceeded, mayBeCharged: true, isDenied: true, events: 1, recounts: 1,
		},
		"exceeded before anything is charged": {err: exceeded, isDenied: true, events: 1},
		"exceeded in a dry run":               {err: exceeded, mayBeCharged: true, dryRun: true, isDenied: true},
		"uncounted": {
			err: &quota.UncountedError{}, mayBeCharged: true, isDenied: true, recounts: 1,
		},
		"uncounted before anything is charged": {err: &quota.UncountedError{}, isDenied: true},
		"deferred":                             {err: outdated("a"), mayBeCharged: true, recounts: 1},
		"another error":                        {err: other, mayBeCharged: true, recounts: 1},
		"another error in a dry run":           {err: other, mayBeCharged: true, dryRun: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				recorder := events.NewFakeRecorder(10)
				denials, err := NewDenials(nil, recorder, prometheus.NewRegistry())
				require.NoError(t, err)
				defer denials.recounts.ShutDown()
				request := &webhook.Request{}
				request.Namespace, request.DryRun = "a", &test.dryRun
				err = (&QuotaAdmission{denials: denials}).deny(request, test.err, test.mayBeCharged)
				if denied, isDenied := errors.AsType[*webhook.Denied](err); test.isDenied {
					require.True(t, isDenied)
					require.Equal(t, test.err.Error(), denied.Error())
				} else {
					require.Equal(t, test.err, err)
				}
				require.Len(t, recorder.Events, test.events)
				time.Sleep(denialRecountDelay)
				synctest.Wait()
				require.Equal(t, test.recounts, denials.recounts.Len())
			})
		})
	}
}

// A namespace that moves waits until the policy space that it enters counts the usage of the one that it leaves.
func TestCountsUsageOf(t *testing.T) {
	t.Parallel()
	long := metav1.NewTime(time.Now().Add(-time.Hour))
	for name, test := range map[string]struct {
		change func(*v1alpha1.PolicySpace)
		want   bool
	}{
		"empty": {func(*v1alpha1.PolicySpace) {}, false},
		"new, with namespaces": {func(s *v1alpha1.PolicySpace) {
			s.CreationTimestamp, s.Status.Namespaces = metav1.Now(), 3
		}, false},
		"old, with namespaces": {func(s *v1alpha1.PolicySpace) { s.Status.Namespaces = 3 }, true},
		"shares": {func(s *v1alpha1.PolicySpace) {
			s.Status.SharedWith = []v1alpha1.PolicySpaceShare{{Name: "old"}}
		}, true},
		"shares with another": {func(s *v1alpha1.PolicySpace) {
			s.Status.SharedWith = []v1alpha1.PolicySpaceShare{{Name: "other"}}
		}, false},
		"no quota": {func(s *v1alpha1.PolicySpace) { s.Spec.Quota = nil }, true},
	} {
		space := countedSpace(resourceList("pods", "3"), nil)
		space.CreationTimestamp = long
		test.change(space)
		require.Equal(t, test.want, countsUsageOf(space, "old"), name)
	}
}

func TestGoesOnFrom(t *testing.T) {
	t.Parallel()
	stored := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "5"}}
	stored.Status.Used = resourceList("pods", "3")
	require.True(t, goesOnFrom(stored, podsChange("a", "3", "4", "5")))
	require.False(t, goesOnFrom(stored, podsChange("a", "3", "4", "4")), "an earlier version")
	require.False(t, goesOnFrom(stored, podsChange("a", "2", "4", "5")), "another usage")
	require.False(t, goesOnFrom(&corev1.ResourceQuota{}, podsChange("a", "3", "4", "5")), "a deleted usage quota")
}

// While the cache contains no written usage, a reservation is left alone for the rest of reclaimTime.
func TestRemainingWriteTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		q := &QuotaAdmission{seen: map[string]map[string]seenReservation{}}
		q.rememberReservations(countedSpace(nil, nil, reserved("a", "1", "5")))
		time.Sleep(reclaimTime / 3)
		q.rememberReservations(countedSpace(nil, nil, reserved("a", "2", "5")))
		require.Equal(t, reclaimTime-reclaimTime/3, q.remainingWriteTime("s", "a", "5"), "it is the same reservation")
		require.Equal(t, reclaimTime, q.remainingWriteTime("s", "a", "6"))
		require.Equal(t, reclaimTime, q.remainingWriteTime("s", "b", "5"))
		time.Sleep(reclaimTime)
		require.Zero(t, q.remainingWriteTime("s", "a", "5"))
		q.forgetReservations("s")
		require.Equal(t, reclaimTime, q.remainingWriteTime("s", "a", "5"))
	})
}

func TestNewerSpace(t *testing.T) {
	t.Parallel()
	state := func(uid types.UID, version string) *v1alpha1.PolicySpace {
		return &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
	}
	last, cached := state("a", "7"), state("a", "5")
	require.Same(t, last, newerSpace(last, cached))
	require.Same(t, cached, newerSpace(cached, cached))
	require.Same(t, last, newerSpace(cached, last))
	require.Same(t, cached, newerSpace(nil, cached))
	require.Nil(t, newerSpace(last, nil), "it was deleted")
	again := state("b", "5")
	require.Same(t, again, newerSpace(last, again), "it was deleted and created again")
}

func TestNewerVersion(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ a, b, want string }{
		{"5", "7", "7"}, {"7", "5", "7"}, {"9", "10", "10"}, {"", "5", "5"}, {"5", "", "5"}, {"", "", ""},
	} {
		require.Equal(t, test.want, newerVersion(test.a, test.b), test)
	}
}
