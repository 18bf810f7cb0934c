package quota_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

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

// space has counted all that it limits.
func space(hard, used corev1.ResourceList) *v1alpha1.PolicySpace {
	s := &v1alpha1.PolicySpace{
		ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Spec:       v1alpha1.PolicySpaceSpec{Quota: &v1alpha1.PolicySpaceQuota{Hard: hard}},
	}
	s.Status.Hard, s.Status.Used = hard, used
	return s
}

func TestCheck(t *testing.T) {
	t.Parallel()
	three := space(list("pods", "3", "cpu", "2"), list("pods", "3", "cpu", "1500m"))
	uncounted := space(list("pods", "3"), nil)
	uncounted.Status.Hard = nil
	for name, test := range map[string]struct {
		space  *v1alpha1.PolicySpace
		change quota.Change
		want   string
	}{
		"the source's": {
			three, quota.Change{Namespace: "c", New: list("pods", "1")},
			`exceeded quota in policyspace "s", requested: pods=4, limit: pods=3`,
		},
		"all that is exceeded": {
			three, quota.Change{
				Namespace: "a", Old: list("pods", "2", "cpu", "500m"), New: list("pods", "3", "cpu", "1500m"),
			},
			`exceeded quota in policyspace "s", requested: cpu=2500m,pods=4, limit: cpu=2,pods=3`,
		},
		"only that": {
			three, quota.Change{
				Namespace: "a", Old: list("pods", "2", "cpu", "500m"), New: list("pods", "3", "cpu", "600m"),
			},
			`exceeded quota in policyspace "s", requested: pods=4, limit: pods=3`,
		},
		"as much as there is": {
			three, quota.Change{Namespace: "a", Old: list("cpu", "500m"), New: list("cpu", "1")}, "",
		},
		"less": {
			space(list("pods", "3"), list("pods", "9")),
			quota.Change{Namespace: "a", Old: list("pods", "9"), New: list("pods", "8")}, "",
		},
		"as much as before": {
			space(list("pods", "3"), list("pods", "9")),
			quota.Change{Namespace: "a", Old: list("pods", "9"), New: list("pods", "9")}, "",
		},
		"something that is unlimited": {three, quota.Change{Namespace: "a", New: list("services", "9")}, ""},
		"no quota": {
			&v1alpha1.PolicySpace{}, quota.Change{Namespace: "a", New: list("pods", "9")}, "",
		},
		"not counted": {
			uncounted, quota.Change{Namespace: "a", New: list("pods", "1")},
			`the use of pods in policyspace "s" is not counted yet: try again in a moment`,
		},
		"0 is a limit": {
			space(list("pods", "0"), nil), quota.Change{Namespace: "a", New: list("pods", "1")},
			`exceeded quota in policyspace "s", requested: pods=1, limit: pods=0`,
		},
		"units that differ": {
			space(list("memory", "1Gi"), list("memory", "512Mi")),
			quota.Change{Namespace: "b", New: list("memory", "600M")},
			`exceeded quota in policyspace "s", requested: memory=1136870912, limit: memory=1Gi`,
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

func TestBookAndSettle(t *testing.T) {
	t.Parallel()
	s := space(list("pods", "5"), list("pods", "3")) // 2 in a, 1 in b
	s.Status = quota.Book(s,
		quota.Change{Namespace: "a", Old: list("pods", "2", "x", "1"), New: list("pods", "3", "x", "2"), Since: "10"})
	require.Equal(t, "pods: 4/5", s.Status.Quota)
	require.Equal(t, "10", s.Status.Bookings[0].Since)
	require.Len(t, s.Status.Bookings[0].Used, 1)
	// Booked again, it is booked once.
	s.Status = quota.Book(s, quota.Change{Namespace: "a", Old: list("pods", "2"), New: list("pods", "3"), Since: "10"})
	require.Equal(t, "pods: 4/5", s.Status.Quota)
	require.NoError(t,
		quota.Check(s, quota.Change{Namespace: "a", Old: list("pods", "2"), New: list("pods", "4"), Since: "10"}))
	require.EqualError(t,
		quota.Check(s, quota.Change{Namespace: "a", Old: list("pods", "2"), New: list("pods", "5"), Since: "10"}),
		`exceeded quota in policyspace "s", requested: pods=6, limit: pods=5`)

	settle := func(a, version string) []string {
		t.Helper()
		status, open := quota.Settle(s, []string{"b", "a"}, map[string]quota.Observed{
			"a": {Used: list("pods", a), ResourceVersion: version},
			"b": {Used: list("pods", "1"), ResourceVersion: "5"},
		})
		s.Status = status
		return open
	}
	// As long as it may still be written down it stays, whatever the cache knows.
	require.Equal(t, []string{"a"}, settle("2", "10"))
	require.Equal(t, []string{"a"}, settle("1", "9"))
	require.Equal(t, "pods: 4/5", s.Status.Quota)
	// When something else was written down, it was that or nothing.
	require.Empty(t, settle("2", "11"))
	require.Equal(t, "pods: 3/5", s.Status.Quota)
	require.Empty(t, s.Status.Bookings)
	require.Empty(t, settle("4", "12"))
	require.Equal(t, "pods: 5/5", s.Status.Quota)
	// A booking of what is not seen yet stays; who is gone has nothing.
	s.Status = quota.Book(s, quota.Change{Namespace: "c", New: list("pods", "2"), Since: "1"})
	s.Status, _ = quota.Settle(s, []string{"c"}, nil)
	require.Equal(t, "pods: 2/5", s.Status.Quota)
	s.Status, _ = quota.Settle(s, nil, nil)
	require.Equal(t, "pods: 0/5", s.Status.Quota)
}

// What a quota limits is enforced once it is counted everywhere, and from then on.
func TestSettleCounts(t *testing.T) {
	t.Parallel()
	s := space(list("pods", "5", "services", "1"), nil)
	s.Status = v1alpha1.PolicySpaceStatus{}
	counted := func(observed map[string]quota.Observed, namespaces ...string) corev1.ResourceList {
		s.Status, _ = quota.Settle(s, namespaces, observed)
		return s.Status.Hard
	}
	require.Empty(t, counted(map[string]quota.Observed{"a": {Used: list("pods", "1")}}, "a", "b"))
	require.Equal(t, list("pods", "5"),
		counted(map[string]quota.Observed{
			"a": {Used: list("pods", "1")}, "b": {Used: list("pods", "0", "services", "0")},
		}, "a", "b"))
	require.Equal(t, list("pods", "5"), counted(nil, "a", "b", "new"))
	// While it is unknown what is used in one namespace, nothing is allowed.
	more := quota.Change{Namespace: "b", New: list("pods", "1")}
	require.Empty(t, s.Status.Uncounted)
	require.NoError(t, quota.Check(s, more))
	counted(map[string]quota.Observed{"a": {Unknown: true}, "b": {}}, "a", "b")
	require.Equal(t, []string{"a"}, s.Status.Uncounted)
	require.ErrorContains(t, quota.Check(s, more), "is not counted yet")
	require.NoError(t, quota.Check(s, quota.Change{Namespace: "b", Old: list("pods", "2"), New: list("pods", "1")}))
	counted(nil, "a", "b")
	require.NoError(t, quota.Check(s, more))
	delete(s.Spec.Quota.Hard, "pods")
	require.Empty(t, counted(nil, "a", "b", "new"))
	require.NotContains(t, s.Status.Quota, "pods")
}

// However requests, failures and counts follow one another, no more is let in than the quota allows, and what is booked
// comes down to what is there when all is quiet.
func TestQuotaNeverExceeded(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // it is a seed
		const limit = 10
		s := space(list("pods", fmt.Sprint(limit)), list("pods", "0"))
		// there is what is written down: the use of each namespace, and its version; seen is an older state of it.
		type state struct{ used, version int64 }
		there, seen := map[string]state{"a": {0, 1}, "b": {0, 1}}, map[string]state{"a": {0, 1}, "b": {0, 1}}
		type write struct {
			namespace string
			to        state
			from      int64
		}
		var admitted []write
		for range 300 {
			ns := []string{"a", "b"}[r.IntN(2)]
			switch r.IntN(5) {
			case 0, 1: // a request goes on from what is there
				now := there[ns]
				more := now.used + 1 + int64(r.IntN(2))
				change := quota.Change{
					Namespace: ns, Old: list("pods", fmt.Sprint(now.used)), New: list("pods", fmt.Sprint(more)),
					Since: fmt.Sprint(now.version),
				}
				if quota.Check(s, change) == nil {
					s.Status = quota.Book(s, change)
					admitted = append(admitted, write{ns, state{more, now.version + 1}, now.version})
				}
			case 2: // what was admitted is written down, if nothing else was
				if len(admitted) > 0 {
					w := admitted[0]
					if admitted = admitted[1:]; there[w.namespace].version == w.from && r.IntN(4) > 0 {
						there[w.namespace] = w.to
					}
				}
			case 3: // something goes
				if now := there[ns]; now.used > 0 {
					there[ns] = state{now.used - 1, now.version + 1}
				}
			case 4: // the controller looks, at what it knows
				if r.IntN(2) == 0 {
					seen[ns] = there[ns]
				}
				settled, _ := quota.Settle(s, []string{"a", "b"},
					observe(seen["a"].used, seen["a"].version, seen["b"].used, seen["b"].version))
				if settled.Quota != s.Status.Quota || r.IntN(2) == 0 { // bookings may stay when they are settled
					s.Status = settled
				}
			}
			require.LessOrEqual(t, there["a"].used+there["b"].used, int64(limit), "seed %d", seed)
		}
		// Whatever was booked last is let go by another version.
		s.Status, _ = quota.Settle(s, []string{"a", "b"},
			observe(there["a"].used, there["a"].version+1, there["b"].used, there["b"].version+1))
		require.Equal(t, fmt.Sprintf("pods: %d/%d", there["a"].used+there["b"].used, limit), s.Status.Quota, "seed %d",
			seed)
	}
}

func observe(a, versionA, b, versionB int64) map[string]quota.Observed {
	return map[string]quota.Observed{
		"a": {Used: list("pods", fmt.Sprint(a)), ResourceVersion: fmt.Sprint(versionA)},
		"b": {Used: list("pods", fmt.Sprint(b)), ResourceVersion: fmt.Sprint(versionB)},
	}
}

func TestRequested(t *testing.T) {
	t.Parallel()
	for name, want := range map[corev1.ResourceName]string{
		"pods": "pods", "cpu": "pods", "limits.memory": "pods", "requests.nvidia.com/gpu": "pods",
		"hugepages-2Mi": "pods", "count/pods": "pods",
		"services.nodeports": "services", "requests.storage": "persistentvolumeclaims",
		"gold.storageclass.storage.k8s.io/requests.storage": "persistentvolumeclaims", "count/jobs.batch": "jobs.batch",
		"gpu.deviceclass.resource.k8s.io/devices": "resourceclaims.resource.k8s.io", "secrets": "secrets",
	} {
		require.Equal(t, want, quota.Requested(name).String(), name)
	}
}

func TestSeveral(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	s := space(list("pods", "5"), list("pods", "3"))
	several := quota.Change{Namespace: "a", Old: list("pods", "2"), New: list("pods", "5")}
	require.Error(t, quota.Check(s, several))
	one, is := several.One()
	require.True(t, is)
	require.NoError(t, quota.Check(s, one))
	_, is = quota.Change{Namespace: "a", Old: list("pods", "2"), New: list("pods", "3")}.One()
	require.False(t, is, "it is one")
	full := space(list("pods", "3"), list("pods", "3"))
	require.ErrorContains(t, quota.Check(full, several), "requested: pods=6, limit: pods=3")
	require.ErrorContains(t, quota.Check(full, one), "requested: pods=4, limit: pods=3",
		"each is told what it asked for")
	require.NoError(t, quota.Check(s, quota.OneMore(pods)))
	require.ErrorContains(t, quota.Check(full, quota.OneMore(pods)), "requested: pods=4, limit: pods=3")
	require.True(t, quota.Spacious(s, pods, 2))
	require.False(t, quota.Spacious(s, pods, 3))
	require.True(t, quota.Spacious(s, schema.GroupResource{Resource: "services"}, 1000))
	require.False(t, quota.Spacious(space(list("cpu", "5"), nil), pods, 1), "how much a pod wants is not known")
}

// What is booked for a namespace gives way to what it is known to use, and is never less than that.
func TestConfirm(t *testing.T) {
	t.Parallel()
	s := space(list("pods", "5"), list("pods", "3")) // 2 in a, 1 in b
	s.Status = quota.Book(s, quota.Change{Namespace: "a", Old: list("pods", "2"), New: list("pods", "4"), Since: "10"})
	require.Equal(t, "pods: 5/5", s.Status.Quota)
	require.True(t, quota.Beyond(s.Status.Bookings[0], list("pods", "3")))
	require.True(t, quota.Beyond(s.Status.Bookings[0], nil))
	require.False(t, quota.Beyond(s.Status.Bookings[0], list("pods", "4")))
	confirmed := func(used, version string) *v1alpha1.PolicySpace {
		after := s.DeepCopy()
		after.Status = quota.Confirm(s, "a", quota.Observed{Used: list("pods", used), ResourceVersion: version})
		return after
	}
	require.Equal(t, s, confirmed("2", "10"), "it may still be written down")
	require.Equal(t, s, confirmed("2", "9"))
	require.Equal(t, s.Status, quota.Confirm(s, "b", quota.Observed{ResourceVersion: "11"}), "nothing is booked for it")
	for used, want := range map[string]string{"0": "pods: 1/5", "2": "pods: 3/5", "4": "pods: 5/5", "5": "pods: 6/5"} {
		after := confirmed(used, "11")
		require.Equal(t, want, after.Status.Quota)
		// A cache that is older does not undo it.
		settled, _ := quota.Settle(after, []string{"a", "b"}, map[string]quota.Observed{
			"a": {Used: list("pods", "0"), ResourceVersion: "10"}, "b": {Used: list("pods", "1"), ResourceVersion: "5"},
		})
		require.Equal(t, want, settled.Quota)
	}
	require.Equal(t, "pods: 1/5", confirmed("0", "").Status.Quota,
		"there is no ResourceQuota to write down anything in")
}

// A booking that goes on from an earlier state does not let go of a later one.
func TestBookGoesForward(t *testing.T) {
	t.Parallel()
	s := space(list("pods", "5"), list("pods", "0"))
	s.Status = quota.Book(s, quota.Change{Namespace: "a", New: list("pods", "2"), Since: "12"})
	s.Status = quota.Book(s, quota.Change{Namespace: "a", New: list("pods", "1"), Since: "9"})
	require.Equal(t, []v1alpha1.QuotaBooking{{Namespace: "a", Used: list("pods", "2"), Since: "12"}}, s.Status.Bookings)
}

// Who takes the place of another space takes over what is booked there.
func TestInherit(t *testing.T) {
	t.Parallel()
	s := space(list("pods", "5"), list("pods", "0"))
	s.Status = quota.Book(s, quota.Change{Namespace: "a", New: list("pods", "1"), Since: "3"})
	s.Status = quota.Inherit(s, []v1alpha1.QuotaBooking{
		{Namespace: "a", Used: list("pods", "2"), Since: "4"}, {Namespace: "b", Used: list("pods", "1"), Since: "5"},
	})
	settled, open := quota.Settle(s, []string{"a", "b"},
		map[string]quota.Observed{"a": {ResourceVersion: "3"}, "b": {ResourceVersion: "5"}})
	require.Equal(t, "pods: 3/5", settled.Quota)
	require.Equal(t, []string{"a", "b"}, open)
}
