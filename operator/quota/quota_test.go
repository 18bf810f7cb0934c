package quota_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

func list(pairs ...string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return all
}

// space returns a policy space s in which every namespace has counted each limited resource.
func space(hard, used corev1.ResourceList) *v1alpha1.PolicySpace {
	s := &v1alpha1.PolicySpace{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       v1alpha1.PolicySpaceSpec{Quota: &v1alpha1.PolicySpaceQuota{Hard: hard}},
	}
	s.Status.Hard, s.Status.Used = hard, used
	return s
}

func TestCheckComparesTheTotalWithTheLimits(t *testing.T) {
	t.Parallel()
	three := space(list("pods", "3", "cpu", "2"), list("pods", "3", "cpu", "1500m"))
	uncounted := space(list("pods", "3"), nil)
	uncounted.Status.Hard = nil
	unknown := space(list("pods", "9", "cpu", "9"), nil)
	unknown.Status.Uncounted = []string{"a"}
	partly := space(list("pods", "3", "services", "3"), list("pods", "3"))
	partly.Status.Hard = list("pods", "3")
	reserved := space(list("pods", "3"), list("pods", "2")) // 1 in a, 1 in b
	reserved.Status = quota.Reserve(reserved,
		quota.Change{Namespace: "a", Old: list("pods", "1"), New: list("pods", "2"), Since: "10"})
	lowered := space(list("pods", "4"), list("pods", "5")) // 4 reserved in a, 1 in b
	lowered.Status.Reservations = []v1alpha1.QuotaReservation{{Namespace: "a", Used: list("pods", "4"), Since: "10"}}
	for name, test := range map[string]struct {
		space  *v1alpha1.PolicySpace
		change quota.Change
		want   string
	}{
		"one more than the limit is denied": {
			three, quota.Change{Namespace: "c", New: list("pods", "1")},
			`exceeded quota in policyspace "s", requested: pods=4, limit: pods=3, used: pods=3`,
		},
		"the error names every exceeded limit": {
			three, quota.Change{
				Namespace: "a", Old: list("pods", "2", "cpu", "500m"), New: list("pods", "3", "cpu", "1500m"),
			},
			`exceeded quota in policyspace "s", requested: cpu=2500m,pods=4, limit: cpu=2,pods=3, ` +
				`used: cpu=1500m,pods=3`,
		},
		"the error names no limit that is not exceeded": {
			three, quota.Change{
				Namespace: "a", Old: list("pods", "2", "cpu", "500m"), New: list("pods", "3", "cpu", "600m"),
			},
			`exceeded quota in policyspace "s", requested: pods=4, limit: pods=3, used: pods=3`,
		},
		"as much as the limit is allowed": {
			three, quota.Change{Namespace: "a", Old: list("cpu", "500m"), New: list("cpu", "1")}, "",
		},
		"a decrease above the limit is allowed": {
			space(list("pods", "3"), list("pods", "9")),
			quota.Change{Namespace: "a", Old: list("pods", "9"), New: list("pods", "8")}, "",
		},
		"no change above the limit is allowed": {
			space(list("pods", "3"), list("pods", "9")),
			quota.Change{Namespace: "a", Old: list("pods", "9"), New: list("pods", "9")}, "",
		},
		"a resource without a limit is allowed": {three, quota.Change{Namespace: "a", New: list("services", "9")}, ""},
		"a policy space without a quota allows everything": {
			&v1alpha1.PolicySpace{}, quota.Change{Namespace: "a", New: list("pods", "9")}, "",
		},
		"a resource that is not counted yet is denied": {
			uncounted, quota.Change{Namespace: "a", New: list("pods", "1")},
			`usage of pods in policyspace "s" is not counted yet: try again in a moment`,
		},
		"a decrease of a resource that is not counted yet is allowed": {
			uncounted, quota.Change{Namespace: "a", Old: list("pods", "2"), New: list("pods", "1")}, "",
		},
		"an increase is denied while the usage of one namespace is unknown": {
			unknown, quota.Change{Namespace: "b", New: list("pods", "1", "cpu", "1")},
			`usage of cpu, pods in policyspace "s" is not counted yet: try again in a moment`,
		},
		"a decrease is allowed while the usage of one namespace is unknown": {
			unknown, quota.Change{Namespace: "b", Old: list("pods", "2"), New: list("pods", "1")}, "",
		},
		"an exceeded limit is reported before an uncounted resource": {
			partly, quota.Change{Namespace: "a", New: list("pods", "1", "services", "1")},
			`exceeded quota in policyspace "s", requested: pods=4, limit: pods=3, used: pods=3`,
		},
		"a reservation of the same namespace includes the change": {
			reserved, quota.Change{Namespace: "a", Old: list("pods", "1"), New: list("pods", "2"), Since: "10"}, "",
		},
		"a change adds to a reservation what exceeds it": {
			reserved, quota.Change{Namespace: "a", Old: list("pods", "1"), New: list("pods", "3"), Since: "10"},
			`exceeded quota in policyspace "s", requested: pods=4, limit: pods=3, used: pods=3`,
		},
		"a reservation of another namespace leaves no room": {
			reserved, quota.Change{Namespace: "b", Old: list("pods", "1"), New: list("pods", "2"), Since: "5"},
			`exceeded quota in policyspace "s", requested: pods=4, limit: pods=3, used: pods=3`,
		},
		"a change below its reservation counts as the reservation": {
			lowered, quota.Change{Namespace: "a", Old: list("pods", "2"), New: list("pods", "3"), Since: "10"},
			`exceeded quota in policyspace "s", requested: pods=5, limit: pods=4, used: pods=5`,
		},
		"a limit of 0 allows nothing": {
			space(list("pods", "0"), nil), quota.Change{Namespace: "a", New: list("pods", "1")},
			`exceeded quota in policyspace "s", requested: pods=1, limit: pods=0, used: pods=0`,
		},
		"amounts in different units are compared": {
			space(list("memory", "1Gi"), list("memory", "512Mi")),
			quota.Change{Namespace: "b", New: list("memory", "600M")},
			`exceeded quota in policyspace "s", requested: memory=1136870912, limit: memory=1Gi, used: memory=512Mi`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := quota.Check(test.space, test.change)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
}

// A change that exceeds a limit of a policy space may exceed one of the namespace, too.
func TestExceeds(t *testing.T) {
	t.Parallel()
	exceeded := &quota.ExceededError{
		Space: "s", Requested: list("pods", "4", "requests.cpu", "1500m"), Limit: list("pods", "3", "requests.cpu", "1"),
		Used: list("pods", "3", "requests.cpu", "1"),
	}
	for name, test := range map[string]struct {
		hard, used corev1.ResourceList
		scopes     []corev1.ResourceQuotaScope
		want       string
	}{
		"full":            {list("pods", "2"), list("pods", "2"), nil, "requested: pods=1, used: pods=2, limited: pods=2"},
		"the last":        {list("pods", "3"), list("pods", "2"), nil, ""},
		"of another kind": {list("services", "0"), list("services", "0"), nil, ""},
		"not counted yet": {nil, nil, nil, ""},
		"one of two limits": {
			list("pods", "9", "requests.cpu", "300m"), nil, nil,
			"requested: requests.cpu=500m, used: requests.cpu=0, limited: requests.cpu=300m",
		},
		"some pods": {list("pods", "0"), nil, []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}, ""},
	} {
		own := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: "own"}, Spec: corev1.ResourceQuotaSpec{Hard: test.hard, Scopes: test.scopes},
			Status: corev1.ResourceQuotaStatus{Hard: test.hard, Used: test.used},
		}
		if test.want != "" {
			test.want = "exceeded quota: own, " + test.want
		}
		require.Equal(t, test.want, exceeded.Exceeds(own), name)
	}
	exceeded.Inner = "exceeded quota: own"
	require.ErrorContains(t, exceeded, `exceeded quota: own, and exceeded quota in policyspace "s", requested: pods=4`)
}

func TestUnreachable(t *testing.T) {
	t.Parallel()
	named := func(name string, hard corev1.ResourceList) *v1alpha1.PolicySpace {
		s := space(hard, nil)
		s.Name = name
		return s
	}
	require.Equal(t,
		[]string{"policyspace team limits pods to 6, but usage reaches the limit 5 of its ancestor dept first"},
		quota.Unreachable([]*v1alpha1.PolicySpace{
			named("team", list("pods", "6", "services", "2", "secrets", "2")),
			named("dept", list("pods", "5", "services", "2")),
			named("root", list("pods", "4", "services", "3")),
		}))
}
