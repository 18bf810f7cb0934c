package policyspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
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

// namespaceIn returns a namespace with a policy space label, and depth labels of policy spaces, the nearest first.
func namespaceIn(name, space string, depths ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{v1alpha1.PolicySpaceLabel: space},
	}}
	for i, depth := range depths {
		ns.Labels[hierarchy.DepthLabel(depth)] = string(rune('1' + i))
	}
	return ns
}

func TestIndexPlaces(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ns   *corev1.Namespace
		want []string
	}{
		"placed":           {namespaceIn("a", "team", "team", "root"), []string{"inside/team", "inside/root"}},
		"moves":            {namespaceIn("a", "new", "team", "root"), []string{"inside/team", "inside/root", "moving"}},
		"moves up":         {namespaceIn("a", "root", "team", "root"), []string{"inside/team", "inside/root"}},
		"not placed yet":   {namespaceIn("a", "team"), nil},
		"leaves":           {namespaceIn("a", "", "root"), []string{"inside/root"}},
		"of Kubernetes":    {namespaceIn("kube-system", "new", "root"), []string{"inside/root"}},
		"in no space ever": {&corev1.Namespace{}, nil},
	} {
		require.Equal(t, test.want, indexPlaces(test.ns), name)
	}
	require.Nil(t, indexPlaces(&corev1.Pod{}))
}

func TestIsEntering(t *testing.T) {
	t.Parallel()
	belowRoot := map[string]bool{"root": true, "team": true}
	require.True(t, isEntering(namespaceIn("a", "team", "other"), "root", belowRoot))
	require.False(t, isEntering(namespaceIn("a", "team", "team", "root"), "root", belowRoot), "it is there")
	require.False(t, isEntering(namespaceIn("a", "other", "another"), "root", belowRoot), "it moves elsewhere")
}

func TestMembersAreSortedAndUnique(t *testing.T) {
	t.Parallel()
	a, b := namespaceIn("a", "team"), namespaceIn("b", "team")
	require.Equal(t, []*corev1.Namespace{a, b}, sortedByName([]*corev1.Namespace{b, a, b}))
	require.Empty(t, sortedByName(nil))
}

func TestChangedSpaces(t *testing.T) {
	t.Parallel()
	space := func(name, parent, tree string) *v1alpha1.PolicySpace {
		s := &v1alpha1.PolicySpace{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.PolicySpaceSpec{Parent: parent},
		}
		if tree != "" {
			s.Labels = map[string]string{v1alpha1.TreeLabel: tree}
		}
		return s
	}
	forest := func(spaces ...*v1alpha1.PolicySpace) hierarchy.Forest { return hierarchy.NewForest(spaces) }
	before := forest(space("root", "", ""), space("other", "", ""), space("team", "root", ""), space("sub", "team", ""))
	for name, test := range map[string]struct {
		after hierarchy.Forest
		want  []string
		moved bool
	}{
		"nothing": {before, nil, false},
		"moved": {
			forest(space("root", "", ""), space("other", "", ""), space("team", "other", ""), space("sub", "team", "")),
			[]string{"root", "other", "team", "sub"}, true,
		},
		"deleted": {
			forest(space("root", "", ""), space("other", "", ""), space("sub", "team", "")),
			[]string{"root", "team", "sub"}, true,
		},
		"another root": {
			forest(space("root", "", ""), space("other", "", ""), space("team", "root", ""), space("sub", "team", ""),
				space("new", "", "")), []string{"new"}, false,
		},
		"in a tree": {
			forest(space("root", "", ""), space("other", "", "other"), space("team", "root", ""),
				space("sub", "team", "")),
			[]string{"other"}, false,
		},
	} {
		require.ElementsMatch(t, test.want, changedSpaces(before, test.after), name)
		ns := namespaceIn("a", "sub", "sub", "team", "root")
		require.Equal(t, test.moved, isPlacedDifferently(ns, before, test.after), name)
	}
}

func TestUnreachableLimits(t *testing.T) {
	t.Parallel()
	named := func(name string, hard corev1.ResourceList) *v1alpha1.PolicySpace {
		space := countedSpace(hard, nil)
		space.Name = name
		return space
	}
	require.Equal(t,
		[]string{"policyspace team limits pods to 6, but usage reaches the limit 5 of its ancestor dept first"},
		unreachableLimits([]*v1alpha1.PolicySpace{
			named("team", resourceList("pods", "6", "services", "2", "secrets", "2")),
			named("dept", resourceList("pods", "5", "services", "2")),
			named("root", resourceList("pods", "4", "services", "3")),
		}))
}
