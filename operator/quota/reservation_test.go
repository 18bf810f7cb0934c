package quota_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

// reservations are written as namespace, amount of pods, and since.
func reservations(all ...[3]string) []v1alpha1.QuotaReservation {
	var list []v1alpha1.QuotaReservation
	for _, r := range all {
		list = append(list, v1alpha1.QuotaReservation{Namespace: r[0], Used: pods(r[1]), Since: r[2]})
	}
	return list
}

func pods(amount string) corev1.ResourceList { return list("pods", amount) }

// spaceWith returns a policy space with a limit of 5 pods, a usage and reservations.
func spaceWith(used string, reserved ...[3]string) *v1alpha1.PolicySpace {
	s := space(pods("5"), pods(used))
	s.Status.Reservations = reservations(reserved...)
	return s
}

// requireReservations compares amounts by their values, whatever their format.
func requireReservations(t *testing.T, want, got []v1alpha1.QuotaReservation) {
	t.Helper()
	texts := func(all []v1alpha1.QuotaReservation) [][3]string {
		var list [][3]string
		for _, r := range all {
			require.LessOrEqual(t, len(r.Used), 1, "only pods are limited")
			amount := r.Used[corev1.ResourcePods]
			list = append(list, [3]string{r.Namespace, amount.String(), r.Since})
		}
		return list
	}
	require.Equal(t, texts(want), texts(got))
}

func TestReserveTheNewUsage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		space     *v1alpha1.PolicySpace
		change    quota.Change
		want      [][3]string
		wantQuota string
	}{
		"a first reservation": {
			spaceWith("3"), quota.Change{Namespace: "a", Old: pods("2"), New: pods("3"), Since: "10"},
			[][3]string{{"a", "3", "10"}}, "pods: 4/5",
		},
		"a namespace that uses nothing yet": {
			spaceWith("3"), quota.Change{Namespace: "c", New: pods("2"), Since: "1"},
			[][3]string{{"c", "2", "1"}}, "pods: 5/5",
		},
		"the same change again changes nothing": {
			spaceWith("4", [3]string{"a", "3", "10"}),
			quota.Change{Namespace: "a", Old: pods("2"), New: pods("3"), Since: "10"},
			[][3]string{{"a", "3", "10"}}, "pods: 4/5",
		},
		"a larger change on the same state raises the reservation": {
			spaceWith("4", [3]string{"a", "3", "10"}),
			quota.Change{Namespace: "a", Old: pods("2"), New: pods("4"), Since: "10"},
			[][3]string{{"a", "4", "10"}}, "pods: 5/5",
		},
		"a smaller change does not lower the reservation": {
			spaceWith("5", [3]string{"a", "4", "10"}),
			quota.Change{Namespace: "a", Old: pods("2"), New: pods("3"), Since: "10"},
			[][3]string{{"a", "4", "10"}}, "pods: 5/5",
		},
		"a change on a later state is the latest": {
			spaceWith("4", [3]string{"a", "3", "10"}),
			quota.Change{Namespace: "a", Old: pods("3"), New: pods("4"), Since: "11"},
			[][3]string{{"a", "4", "11"}}, "pods: 5/5",
		},
		"a change on an earlier state does not replace the latest": {
			spaceWith("4", [3]string{"a", "3", "10"}),
			quota.Change{Namespace: "a", Old: pods("2"), New: pods("3"), Since: "9"},
			[][3]string{{"a", "3", "10"}}, "pods: 4/5",
		},
		"each namespace has its own reservation": {
			spaceWith("4", [3]string{"a", "3", "10"}),
			quota.Change{Namespace: "b", Old: pods("1"), New: pods("2"), Since: "5"},
			[][3]string{{"a", "3", "10"}, {"b", "2", "5"}}, "pods: 5/5",
		},
		"resources without a limit are not reserved": {
			spaceWith("3"),
			quota.Change{Namespace: "a", Old: list("x", "1"), New: list("pods", "1", "x", "2"), Since: "10"},
			[][3]string{{"a", "1", "10"}}, "pods: 4/5",
		},
		"a decrease reserves nothing": {
			spaceWith("3"), quota.Change{Namespace: "a", Old: pods("2"), New: pods("1"), Since: "10"},
			[][3]string{{"a", "0", "10"}}, "pods: 3/5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := test.space.DeepCopy()
			status := quota.Reserve(test.space, test.change)
			require.Equal(t, before, test.space, "the policy space itself does not change")
			requireReservations(t, reservations(test.want...), status.Reservations)
			require.Equal(t, test.wantQuota, status.Quota)
		})
	}
}

func TestConfirmReplacesAReservationByALaterStoredUsage(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		namespace string
		stored    quota.Usage
		want      [3]string // the reservation of namespace a
		wantQuota string
	}{
		"an earlier state changes nothing": {
			"a", quota.Usage{Used: pods("2"), ResourceVersion: "9"}, [3]string{"a", "4", "10"}, "pods: 5/5",
		},
		"the state that the reservation is based on changes nothing": {
			"a", quota.Usage{Used: pods("2"), ResourceVersion: "10"}, [3]string{"a", "4", "10"}, "pods: 5/5",
		},
		"the reserved usage was stored": {
			"a", quota.Usage{Used: pods("4"), ResourceVersion: "11"}, [3]string{"a", "4", "11"}, "pods: 5/5",
		},
		"the reserved usage was not stored": {
			"a", quota.Usage{Used: pods("2"), ResourceVersion: "11"}, [3]string{"a", "2", "11"}, "pods: 3/5",
		},
		"everything was deleted": {
			"a", quota.Usage{Used: pods("0"), ResourceVersion: "11"}, [3]string{"a", "0", "11"}, "pods: 1/5",
		},
		"more than reserved is used": {
			"a", quota.Usage{Used: pods("5"), ResourceVersion: "11"}, [3]string{"a", "5", "11"}, "pods: 6/5",
		},
		"there is no ResourceQuota that could store it": {
			"a", quota.Usage{}, [3]string{"a", "0", ""}, "pods: 1/5",
		},
		"a namespace without a reservation changes nothing": {
			"b", quota.Usage{Used: pods("0"), ResourceVersion: "11"}, [3]string{"a", "4", "10"}, "pods: 5/5",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spaceWith("5", [3]string{"a", "4", "10"}) // and 1 in b
			s.Status.Quota = "pods: 5/5"
			before := s.DeepCopy()
			status := quota.Confirm(s, test.namespace, test.stored)
			require.Equal(t, before, s, "the policy space itself does not change")
			requireReservations(t, reservations(test.want), status.Reservations)
			require.Equal(t, test.wantQuota, status.Quota)
		})
	}
}

// A controller whose cache is behind the confirmed state must not undo the confirmation.
func TestSettleWithAnEarlierStateKeepsAConfirmedUsage(t *testing.T) {
	t.Parallel()
	for used, want := range map[string]string{"0": "pods: 1/5", "2": "pods: 3/5", "4": "pods: 5/5", "5": "pods: 6/5"} {
		s := spaceWith("5", [3]string{"a", "4", "10"})
		s.Status = quota.Confirm(s, "a", quota.Usage{Used: pods(used), ResourceVersion: "11"})
		settled, _ := quota.Settle(s, []string{"a", "b"}, map[string]quota.Usage{
			"a": {Used: pods("0"), ResourceVersion: "10"}, "b": {Used: pods("1"), ResourceVersion: "5"},
		})
		require.Equal(t, want, settled.Quota)
	}
}

func TestExceedsUsageComparesAReservationWithAKnownUsage(t *testing.T) {
	t.Parallel()
	reservation := v1alpha1.QuotaReservation{Namespace: "a", Used: list("pods", "4", "cpu", "1")}
	for name, test := range map[string]struct {
		used corev1.ResourceList
		want bool
	}{
		"nothing is known":       {nil, true},
		"less of one resource":   {list("pods", "3", "cpu", "1"), true},
		"one resource is absent": {list("pods", "4"), true},
		"equal amounts":          {list("pods", "4", "cpu", "1000m"), false},
		"more":                   {list("pods", "5", "cpu", "2"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want, quota.ExceedsUsage(reservation, test.used))
		})
	}
}

func TestInheritAddsTheReservationsOfAnotherPolicySpace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		own, others, want [][3]string
	}{
		"another namespace": {
			own: [][3]string{{"a", "1", "3"}}, others: [][3]string{{"b", "2", "5"}},
			want: [][3]string{{"a", "1", "3"}, {"b", "2", "5"}},
		},
		"a larger and later one of the same namespace": {
			own: [][3]string{{"a", "1", "3"}}, others: [][3]string{{"a", "2", "4"}},
			want: [][3]string{{"a", "2", "4"}},
		},
		"a smaller and earlier one of the same namespace": {
			own: [][3]string{{"a", "2", "4"}}, others: [][3]string{{"a", "1", "3"}},
			want: [][3]string{{"a", "2", "4"}},
		},
		"a larger and earlier one of the same namespace": {
			own: [][3]string{{"a", "1", "4"}}, others: [][3]string{{"a", "2", "3"}},
			want: [][3]string{{"a", "2", "4"}},
		},
		"none": {own: [][3]string{{"a", "1", "3"}}, want: [][3]string{{"a", "1", "3"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := spaceWith("5", test.own...)
			before := s.DeepCopy()
			status := quota.Inherit(s, reservations(test.others...))
			require.Equal(t, before, s, "the policy space itself does not change")
			requireReservations(t, reservations(test.want...), status.Reservations)
		})
	}
}
