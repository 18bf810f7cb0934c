package policyspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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
		space, nextEnd := withoutEnded(stored)
		require.Equal(t, []string{"", "later", "next"}, withShares(space))
		require.Equal(t, 5*time.Second, nextEnd)
		require.Len(t, stored.Status.SharedWith, 4, "the stored policy space is of a cache")
		time.Sleep(9 * time.Second)
		space, nextEnd = withoutEnded(stored)
		require.Empty(t, space.Status.SharedWith)
		require.Zero(t, nextEnd)
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
	space := func(age time.Duration) *v1alpha1.PolicySpace {
		return &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{
			CreationTimestamp: metav1.NewTime(time.Now().Add(-age)),
		}}
	}
	require.True(t, mayReplace(space(time.Hour), 0), "empty")
	require.True(t, mayReplace(space(replacementAge/2), 3), "new")
	require.False(t, mayReplace(space(2*replacementAge), 1))
}

func TestSooner(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ a, b, want time.Duration }{{0, 0, 0}, {0, 2, 2}, {2, 0, 2}, {2, 3, 2}, {3, 2, 2}} {
		require.Equal(t, test.want, sooner(test.a, test.b), test)
	}
}
