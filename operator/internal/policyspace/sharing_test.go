package policyspace

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/quota"
)

func TestWithoutEnded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		share := func(name string, left time.Duration) v1alpha1.PolicySpaceShare {
			return v1alpha1.PolicySpaceShare{Name: name, Until: metav1.NewTime(time.Now().Add(left))}
		}
		stored := &v1alpha1.PolicySpace{}
		stored.Status.SharedWith = []v1alpha1.PolicySpaceShare{
			share("ended", 0), share("later", 9*time.Second), share("next", 5*time.Second), share("past", -time.Second),
		}
		full := func(string) bool { return false }
		space, nextEnd := withoutEnded(stored, full)
		require.Equal(t, []string{"", "later", "next"}, withShares(space))
		require.Equal(t, 5*time.Second, nextEnd)
		require.Len(t, stored.Status.SharedWith, 4, "the stored policy space is of a cache")
		space, nextEnd = withoutEnded(stored, func(name string) bool { return name == "next" })
		require.Equal(t, []string{"", "later"}, withShares(space), "the limit of the other one counts all namespaces")
		require.Equal(t, 9*time.Second, nextEnd)
		space, _ = withoutEnded(stored, func(name string) bool { return name == stored.Name })
		require.Empty(t, space.Status.SharedWith)
		time.Sleep(9 * time.Second)
		space, nextEnd = withoutEnded(stored, full)
		require.Empty(t, space.Status.SharedWith)
		require.Zero(t, nextEnd)
	})
}

// Moves that take longer than a share lasts renew it. Otherwise two policy spaces could use the same limit twice.
func TestAShareIsRenewedBeforeItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for left, want := range map[time.Duration]bool{
			shareTime: false, 20 * time.Second: false, 10 * time.Second: true, -time.Second: true,
		} {
			entered := countedSpace(resourceList("pods", "3"), nil)
			entered.Status.SharedWith = []v1alpha1.PolicySpaceShare{{
				Name: "old", Until: metav1.NewTime(time.Now().Add(left)),
			}}
			stored := storedSpaces{byName: map[string]*v1alpha1.PolicySpace{"s": entered}}
			spaces := &Spaces{Leader: &leadership.Leader{Client: stored}}
			isDue, err := spaces.isShareDue(t.Context(), hierarchy.Replacement{Old: "old", New: "s"})
			require.NoError(t, err)
			require.Equal(t, want, isDue, left)
		}
	})
}

func TestWithShare(t *testing.T) {
	t.Parallel()
	now := time.Now()
	status := v1alpha1.PolicySpaceStatus{SharedWith: []v1alpha1.PolicySpaceShare{{
		Name: "a", Until: metav1.NewTime(now),
	}}}
	later := now.Add(shareTime)
	longer := withShare(status, "a", later)
	require.Equal(t, []v1alpha1.PolicySpaceShare{{Name: "a", Until: metav1.NewTime(later)}}, longer)
	more := withShare(status, "b", later)
	require.Equal(t, []v1alpha1.PolicySpaceShare{
		{Name: "a", Until: metav1.NewTime(now)}, {Name: "b", Until: metav1.NewTime(later)},
	}, more)
}

func TestMayReplace(t *testing.T) {
	t.Parallel()
	inTree := func(s *v1alpha1.PolicySpace) { s.Labels = map[string]string{v1alpha1.TreeLabel: "t"} }
	withLimits := func(pairs ...string) func(*v1alpha1.PolicySpace) {
		return func(s *v1alpha1.PolicySpace) { s.Spec.Quota.Hard = resourceList(pairs...) }
	}
	none := func(*v1alpha1.PolicySpace) {}
	deleted := func(s *v1alpha1.PolicySpace) { s.DeletionTimestamp = new(metav1.Now()) }
	both := func(first, second func(*v1alpha1.PolicySpace)) func(*v1alpha1.PolicySpace) {
		return func(s *v1alpha1.PolicySpace) { first(s); second(s) }
	}
	for name, test := range map[string]struct {
		age        time.Duration
		namespaces int
		space, old func(*v1alpha1.PolicySpace)
		want       bool
	}{
		"empty, and the limits are the same":       {time.Hour, 0, none, none, true},
		"young, and the limits are the same":       {replacementAge / 2, 3, none, none, true},
		"neither empty nor young":                  {2 * replacementAge, 1, none, none, false},
		"the number of namespaces may differ":      {0, 0, withLimits("pods", "3", "count/namespaces", "2"), none, true},
		"another limit":                            {0, 0, withLimits("pods", "4"), none, false},
		"one more limit":                           {0, 0, withLimits("pods", "3", "services", "1"), none, false},
		"another limit, both in a tree":            {0, 0, both(withLimits("pods", "4"), inTree), inTree, true},
		"another limit, only the new in a tree":    {0, 0, both(withLimits("pods", "4"), inTree), none, false},
		"another limit, the old one is deleted":    {0, 0, withLimits("pods", "4"), deleted, true},
		"the old one does not exist":               {0, 0, none, nil, true},
		"the old one does not exist, no limits":    {0, 0, withLimits(), nil, false},
		"the new one limits nothing":               {0, 0, withLimits(), none, false},
		"the old one limits nothing":               {0, 0, none, withLimits(), false},
		"the old one limits only namespaces":       {0, 0, none, withLimits("count/namespaces", "3"), false},
		"an old one in a tree that limits nothing": {0, 0, inTree, both(withLimits(), inTree), false},
	} {
		space, old := countedSpace(resourceList("pods", "3"), nil), countedSpace(resourceList("pods", "3"), nil)
		space.CreationTimestamp = metav1.NewTime(time.Now().Add(-test.age))
		test.space(space)
		if test.old == nil {
			old = nil
		} else {
			test.old(old)
		}
		require.Equal(t, test.want, mayReplace(space, old, test.namespaces), name)
	}
}

// A request that exceeds a limit while usage is shared is repeated, until the share ends.
func TestDeferredByShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		space := countedSpace(resourceList("pods", "3"), resourceList("pods", "3"))
		space.Status.SharedWith = []v1alpha1.PolicySpaceShare{{
			Name: "old", Until: metav1.NewTime(time.Now().Add(shareTime)),
		}}
		exceeded, isExceeded := errors.AsType[*quota.ExceededError](quota.Check(space, podsChange("n", "1", "2", "7")))
		require.True(t, isExceeded)
		deferred := deferredByShare(exceeded)
		require.EqualError(t, deferred, `exceeded quota in policyspace "s", requested: pods=4, limit: pods=3, used: pods=3: `+
			`until 2000-01-01T00:00:30Z, usage in policyspace "old" counts too, because namespaces move from one to the `+
			`other: try again (nstpl:quota-exceeded)`)
		require.Equal(t, shareRetry, deferred.After)
		time.Sleep(shareTime - time.Second)
		require.Equal(t, 2*time.Second, deferredByShare(exceeded).After)
		time.Sleep(time.Second)
		require.Nil(t, deferredByShare(exceeded))
	})
}

func TestSooner(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {2, 3, 2}, {3, 2, 2}} {
		require.Equal(t, test.want, sooner(test.a, test.b), test)
	}
}
