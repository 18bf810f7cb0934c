package quota_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

func TestSettleAddsUpStoredUsageAndReservations(t *testing.T) {
	t.Parallel()
	stored := func(used, version string) quota.Usage {
		return quota.Usage{Used: pods(used), ResourceVersion: version}
	}
	for name, test := range map[string]struct {
		reserved        [][3]string
		observed        map[string]quota.Usage
		want            [][3]string
		wantQuota       string
		wantUnconfirmed []string
	}{
		"stored usage alone": {
			observed:  map[string]quota.Usage{"a": stored("2", "10"), "b": stored("1", "5")},
			wantQuota: "pods: 3/5",
		},
		"a reservation stays while the state is the one that it is based on": {
			reserved: [][3]string{{"a", "3", "10"}},
			observed: map[string]quota.Usage{"a": stored("2", "10"), "b": stored("1", "5")},
			want:     [][3]string{{"a", "3", "10"}}, wantQuota: "pods: 4/5", wantUnconfirmed: []string{"a"},
		},
		"a reservation stays while the cache is behind": {
			reserved: [][3]string{{"a", "3", "10"}},
			observed: map[string]quota.Usage{"a": stored("1", "9"), "b": stored("1", "5")},
			want:     [][3]string{{"a", "3", "10"}}, wantQuota: "pods: 4/5", wantUnconfirmed: []string{"a"},
		},
		"a reservation is dropped when a later state is stored": {
			reserved:  [][3]string{{"a", "3", "10"}},
			observed:  map[string]quota.Usage{"a": stored("2", "11"), "b": stored("1", "5")},
			wantQuota: "pods: 3/5",
		},
		"a stored usage that exceeds the reservation counts": {
			reserved: [][3]string{{"a", "3", "10"}},
			observed: map[string]quota.Usage{"a": stored("4", "10"), "b": stored("1", "5")},
			want:     [][3]string{{"a", "3", "10"}}, wantQuota: "pods: 5/5",
		},
		"a reservation stays while no ResourceQuota is seen": {
			reserved: [][3]string{{"a", "2", "1"}},
			observed: map[string]quota.Usage{"b": stored("1", "5")},
			want:     [][3]string{{"a", "2", "1"}}, wantQuota: "pods: 3/5", wantUnconfirmed: []string{"a"},
		},
		"the reservation of a namespace that is not in the policy space is dropped": {
			reserved:  [][3]string{{"gone", "3", "10"}},
			observed:  map[string]quota.Usage{"b": stored("1", "5")},
			wantQuota: "pods: 1/5",
		},
		"a usage above the limit is reported as it is": {
			observed:  map[string]quota.Usage{"a": stored("6", "10"), "b": stored("1", "5")},
			wantQuota: "pods: 7/5",
		},
		"resource versions that cannot be compared keep the usage of the ResourceQuota": {
			reserved:  [][3]string{{"a", "3", "x"}},
			observed:  map[string]quota.Usage{"a": stored("2", "11")},
			wantQuota: "pods: 2/5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spaceWith("9", test.reserved...)
			before := s.DeepCopy()
			status, unconfirmed := quota.Settle(s, []string{"b", "a"}, test.observed)
			require.Equal(t, before, s, "the policy space itself does not change")
			requireReservations(t, reservations(test.want...), status.Reservations)
			require.Equal(t, test.wantQuota, status.Quota)
			require.Equal(t, test.wantUnconfirmed, unconfirmed)
		})
	}
}

func TestSettleEnforcesALimitOnceEveryNamespaceHasCountedIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		enforced corev1.ResourceList // before
		observed map[string]quota.Usage
		want     corev1.ResourceList
	}{
		"one namespace has counted": {observed: map[string]quota.Usage{"a": {Used: pods("1")}}},
		"both have counted one resource": {
			observed: map[string]quota.Usage{
				"a": {Used: pods("1")}, "b": {Used: list("pods", "0", "services", "0")},
			},
			want: pods("5"),
		},
		"an enforced limit stays enforced when a namespace has not counted": {enforced: pods("5"), want: pods("5")},
		"a limit that was removed is not enforced": {
			enforced: list("pods", "5", "secrets", "3"), want: pods("5"),
		},
		"a changed limit applies at once": {enforced: pods("9"), want: pods("5")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := space(list("pods", "5", "services", "1"), nil)
			s.Status = v1alpha1.PolicySpaceStatus{Hard: test.enforced}
			status, _ := quota.Settle(s, []string{"a", "b"}, test.observed)
			require.Equal(t, test.want, status.Hard)
		})
	}
}

func TestSettleNamesNamespacesWithUnknownUsage(t *testing.T) {
	t.Parallel()
	s := spaceWith("0")
	status, _ := quota.Settle(s, []string{"a", "b"}, map[string]quota.Usage{"a": {Unknown: true}, "b": {}})
	require.Equal(t, []string{"a"}, status.Uncounted)
	s.Status = status
	status, _ = quota.Settle(s, []string{"a", "b"}, nil)
	require.Empty(t, status.Uncounted, "the usage is known again")

	many, observed := []string{}, map[string]quota.Usage{}
	for i := range 20 {
		many = append(many, fmt.Sprint("n", i))
		observed[many[i]] = quota.Usage{Unknown: true}
	}
	status, _ = quota.Settle(s, many, observed)
	require.Equal(t, many[:10], status.Uncounted, "the first ten are enough")
	status, _ = quota.Settle(&v1alpha1.PolicySpace{}, many, observed)
	require.Empty(t, status.Uncounted, "nothing is limited")
}

func TestSettleOfAPolicySpaceWithoutALimitIsEmpty(t *testing.T) {
	t.Parallel()
	s := space(nil, pods("3"))
	s.Status.Hard, s.Status.Quota = pods("5"), "pods: 3/5"
	status, unconfirmed := quota.Settle(s, []string{"a"}, map[string]quota.Usage{"a": {Used: pods("1")}})
	require.Equal(t, v1alpha1.PolicySpaceStatus{}, status)
	require.Empty(t, unconfirmed)
}

func TestExcessNamesWhatExceedsTheLimits(t *testing.T) {
	t.Parallel()
	s := space(list("pods", "5", "cpu", "2", "secrets", "1"), nil)
	s.Status.Used = list("pods", "6", "cpu", "2500m", "secrets", "1", "services", "9")
	require.Equal(t, "cpu: 2500m of 2, pods: 6 of 5", quota.Excess(s, s.Status))
	s.Status.Used = list("pods", "5", "cpu", "2")
	require.Empty(t, quota.Excess(s, s.Status))
}

func TestCountedUnitesTheLimitsOfAllPolicySpaces(t *testing.T) {
	t.Parallel()
	require.Equal(t,
		corev1.ResourceList{"pods": quota.Unlimited, "cpu": quota.Unlimited, "secrets": quota.Unlimited},
		quota.Counted([]*v1alpha1.PolicySpace{
			space(list("pods", "5", "cpu", "2"), nil), {}, space(list("pods", "9", "secrets", "1"), nil),
		}))
	require.Empty(t, quota.Counted(nil))
}

func TestKnownUsage(t *testing.T) {
	t.Parallel()
	s := space(list("pods", "5", "secrets", "4", "count/namespaces", "3"),
		list("pods", "2", "secrets", "1", "count/namespaces", "1"))
	s.Status.Hard = list("pods", "5")
	known := func() []string {
		var names []string
		for _, name := range []corev1.ResourceName{"count/namespaces", "pods", "secrets", "services"} {
			if used, isKnown := quota.Known(s, name); isKnown {
				names = append(names, string(name)+"="+used.String())
			}
		}
		return names
	}
	require.Equal(t, []string{"count/namespaces=1", "pods=2"}, known(), "some namespace has not counted secrets")
	s.Status.Uncounted = []string{"a"}
	require.Equal(t, []string{"count/namespaces=1"}, known(), "a may use more pods")
}
