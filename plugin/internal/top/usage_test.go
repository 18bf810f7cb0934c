package top

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

func list(pairs ...string) corev1.ResourceList {
	all := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return all
}

func newSpaceOf(name, parent string, hard, used corev1.ResourceList) *v1alpha1.PolicySpace {
	space := &v1alpha1.PolicySpace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.PolicySpaceSpec{Parent: parent},
		Status:     v1alpha1.PolicySpaceStatus{Hard: hard, Used: used},
	}
	if hard != nil {
		space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: hard}
	}
	return space
}

func in(name string, spaces ...string) *corev1.Namespace {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: name, Labels: map[string]string{v1alpha1.PolicySpaceLabel: spaces[0]},
	}}
	for i, space := range spaces {
		ns.Labels[hierarchy.DepthLabel(space)] = string(rune('1' + i))
	}
	return ns
}

// example is a root with a quota, a child with one, a child without, and namespaces in all of them.
func example() usage {
	shared := newSpaceOf("limited", "root", list("pods", "4", "requests.cpu", "0"), list("pods", "3"))
	shared.Status.Hard = list("pods", "4")
	shared.Status.SharedWith = []v1alpha1.PolicySpaceShare{{Name: "former"}}
	return usage{
		forest: hierarchy.NewForest([]*v1alpha1.PolicySpace{
			newSpaceOf("root", "", list("pods", "10"), list("pods", "9")), shared, newSpaceOf("free", "root", nil, nil),
			newSpaceOf("other", "", nil, nil),
		}),
		namespaces: []*corev1.Namespace{
			in("a", "root"), in("b", "limited", "root"), in("c", "free", "root"), in("d", "free", "root"),
			in("e", "other"),
		},
		used: map[string]corev1.ResourceList{
			"a": list("pods", "1"), "b": list("pods", "3"), "c": list("pods", "5"), "d": list("pods", "0"),
			"e": list("pods", "8"),
		},
	}
}

// shown returns the names and amounts of shares.
func shown(shares []share) []string {
	if shares == nil {
		return nil
	}
	texts := []string{}
	for _, s := range shares {
		if s.Percent == nil {
			texts = append(texts, s.Name+" unknown")
			continue
		}
		texts = append(texts, s.Name+" "+s.Used+" "+percentage(*s.Percent))
	}
	return texts
}

func TestLimitsHaveTheLargestUsersFirst(t *testing.T) {
	t.Parallel()
	limits := newLimits(example(), []string{"limited", "root"}, "")
	require.Len(t, limits, 3)
	require.Equal(t, []string{"limited", "pods", "3", "4"},
		[]string{limits[0].Name, limits[0].Resource, limits[0].Used, limits[0].Limit})
	require.Equal(t, 75, *limits[0].Percent)
	require.Equal(t, []string{"b 3 75%"}, shown(limits[0].Namespaces))
	require.Empty(t, limits[0].PolicySpaces)
	require.Equal(t, "includes the usage of former, from which namespaces moved", limits[0].Message)
	require.Equal(t, "requests.cpu", limits[1].Resource)
	require.Nil(t, limits[1].Percent, "nothing has counted")
	require.Equal(t, []string{"policyspace/limited", "requests.cpu", "<unknown>", "0", "<unknown>"},
		table(limits[1:2], false).Rows[0][:5])
	require.Contains(t, limits[1].Message, "not counted in all namespaces yet")
	require.Contains(t, notes(limits)[1], "policyspace/limited: requests.cpu: not counted in all namespaces yet")
	require.Equal(t, 90, *limits[2].Percent)
	require.Equal(t, []string{"c 5 50%", "b 3 30%", "a 1 10%"}, shown(limits[2].Namespaces))
	require.Equal(t, []string{"free 5 50%", "limited 3 30%"}, shown(limits[2].PolicySpaces))

	sortByPercent(limits)
	require.Equal(t, []int{90, 75}, []int{*limits[0].Percent, *limits[1].Percent})
	require.Nil(t, limits[2].Percent)
	require.Len(t, newLimits(example(), []string{"limited", "root"}, "requests.cpu"), 1)
	require.Equal(t, []string{"limited", "root"}, example().lineage("limited"))
}

func TestUsersOfLimitsThatCannotBeReadAreUnknown(t *testing.T) {
	t.Parallel()
	unreadable := example()
	unreadable.used, unreadable.namespaces = nil, nil
	limits := newLimits(unreadable, []string{"limited", "root"}, "pods")
	require.Nil(t, limits[0].Namespaces)
	require.Equal(t, []string{}, shown(limits[0].PolicySpaces), "it is known that there are none")
	require.Equal(t, []string{"limited 3 30%", "free unknown"}, shown(limits[1].PolicySpaces),
		"the status of one of them has its usage")
	rows := table(limits[1:], false).Rows
	require.Equal(t, []string{"  policyspace/free", "pods", "<unknown>", "", "<unknown>", ""}, rows[2])
	printed, err := json.Marshal(limits[1].PolicySpaces)
	require.NoError(t, err)
	require.JSONEq(t, `[{"name": "limited", "used": "3", "percent": 30}, {"name": "free"}]`, string(printed))

	unreadable.isLineage = true
	require.Nil(t, newLimits(unreadable, []string{"limited", "root"}, "pods")[1].PolicySpaces, "there may be others")
}

func TestTableShowsTheLargestUsers(t *testing.T) {
	t.Parallel()
	many := limit{Name: "s", Resource: "pods", Used: "21", Limit: "30", Percent: new(70)}
	used, maximum := resource.MustParse("3"), resource.MustParse("30")
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		many.Namespaces = append(many.Namespaces, newShare(name, &used, maximum))
	}
	rows := table([]limit{many}, false).Rows
	require.Len(t, rows, 7)
	require.Equal(t, []string{"  namespace/a", "pods", "3", "", "10%", ""}, rows[1])
	require.Equal(t, "  2 more with -o wide", rows[6][0])
	require.Len(t, table([]limit{many}, true).Rows, 8)
}

// Namespaces are counted by their labels, and a child without a limit by those below it.
func TestLimitsOnTheNumberOfNamespaces(t *testing.T) {
	t.Parallel()
	few := example()
	few.forest.Get("root").Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: list("count/namespaces", "8")}
	few.forest.Get("root").Status = v1alpha1.PolicySpaceStatus{
		Hard: list("count/namespaces", "8"), Used: list("count/namespaces", "4"),
	}
	limits := newLimits(few, []string{"root"}, "")
	require.Len(t, limits, 1)
	require.Equal(t, 50, *limits[0].Percent)
	require.Empty(t, limits[0].Message)
	require.Equal(t, []string{"a 1 12%", "b 1 12%", "c 1 12%", "d 1 12%"}, shown(limits[0].Namespaces))
	require.Equal(t, []string{"free 2 25%", "limited 1 12%"}, shown(limits[0].PolicySpaces))
	few.forest.Get("root").Status.Hard = nil
	require.Equal(t, "not enforced yet", newLimits(few, []string{"root"}, "")[0].Message)
	few.used, few.namespaces = nil, nil
	require.Nil(t, newLimits(few, []string{"root"}, "")[0].Namespaces)
	require.Equal(t, []string{"free unknown", "limited unknown"},
		shown(newLimits(few, []string{"root"}, "")[0].PolicySpaces))
}

// The sum over the namespaces that have counted is not the usage.
func TestUsageThatIsNotCountedEverywhereIsUnknown(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1alpha1.PolicySpaceStatus){
		"a resource that some namespace has not counted yet": func(s *v1alpha1.PolicySpaceStatus) { s.Hard = nil },
		"a namespace whose usage is unknown": func(s *v1alpha1.PolicySpaceStatus) {
			s.Uncounted = []string{"b"}
		},
	} {
		partial := example()
		change(&partial.forest.Get("limited").Status)
		limits := newLimits(partial, []string{"limited", "root"}, "pods")
		require.Empty(t, limits[0].Used, name)
		require.Nil(t, limits[0].Percent, name)
		require.NotEmpty(t, limits[0].Message, name)
		require.Equal(t, []string{"free 5 50%", "limited unknown"}, shown(limits[1].PolicySpaces), name)
	}
}

// A child without a limit has a usage once each of its namespaces has counted the resource.
func TestUsageOfAChildThatIsNotCountedEverywhereIsUnknown(t *testing.T) {
	t.Parallel()
	for uncounted, used := range map[string]corev1.ResourceList{
		"d": nil, // its ResourceQuota does not exist yet
		"c": list("requests.cpu", "1"),
	} {
		partial := example()
		partial.used[uncounted] = used
		root := newLimits(partial, []string{"root"}, "pods")[0]
		require.Equal(t, []string{"limited 3 30%", "free unknown"}, shown(root.PolicySpaces), uncounted)
		require.Contains(t, shown(root.Namespaces), uncounted+" unknown")
	}
}

// Users who may not list policyspaces see by the depth labels which namespaces are below.
func TestNamespacesBelowUnknownChildren(t *testing.T) {
	t.Parallel()
	root := newSpaceOf("root", "", list("count/namespaces", "8"), list("count/namespaces", "4"))
	few := example()
	few.forest, few.isLineage = hierarchy.NewForest([]*v1alpha1.PolicySpace{root}), true
	require.Equal(t, []string{"a 1 12%", "b 1 12%", "c 1 12%", "d 1 12%"},
		shown(newLimits(few, []string{"root"}, "count/namespaces")[0].Namespaces))
}
