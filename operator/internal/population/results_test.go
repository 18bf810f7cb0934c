package population

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestNamespaceIsNewUntilItIsReconciled(t *testing.T) {
	results := NewResults(func(string, bool) {})
	require.False(t, results.IsNew("a", "1"), "it existed before")
	results.Created("a", "1", time.Now())
	require.True(t, results.IsNew("a", "1"))
	require.False(t, results.IsNew("a", "2"), "it is another one")
	born := results.Record("a", "1", nil, false)
	require.True(t, born.IsZero(), "it is not populated yet")
	require.False(t, results.IsNew("a", "1"))
	born = results.Record("a", "1", nil, true)
	require.False(t, born.IsZero())
	require.True(t, results.Record("a", "1", nil, true).IsZero(), "it was populated before")
}

// A rollout may reconcile a namespace from the cache before the event of its creation arrives.
func TestCreationEventAfterTheFirstReconciliationIsIgnored(t *testing.T) {
	results := NewResults(func(string, bool) {})
	results.Record("a", "1", nil, true)
	require.False(t, results.Created("a", "1", time.Now()))
	require.False(t, results.IsNew("a", "1"))
}

func TestNamespaceIsASuccessorUntilItIsReconciled(t *testing.T) {
	results := NewResults(func(string, bool) {})
	require.False(t, results.IsSuccessor("a", "1"), "none was known before")
	results.Record("a", "1", nil, true)
	require.False(t, results.IsSuccessor("a", "1"))
	require.True(t, results.IsSuccessor("a", "2"))
	results.Record("a", "2", nil, true)
	require.False(t, results.IsSuccessor("a", "2"))
}

func TestLateResultsOfADeletedNamespaceAreIgnored(t *testing.T) {
	results := NewResults(func(string, bool) {})
	results.Created("a", "1", time.Now())
	results.Created("a", "2", time.Now())
	results.Record("a", "1", map[string]TemplateResult{"t": {State: Failed}}, false)
	results.Forget("a")
	require.True(t, results.IsNew("a", "2"))
	require.Zero(t, results.Summary("t", 1).Counts)
}

func TestSummaryCountsNamespacesOnce(t *testing.T) {
	changed := map[string]int{}
	results := NewResults(func(template string, _ bool) { changed[template]++ })
	results.SetPending("t", 0, []string{"a", "b", "c", "d", "e"})
	require.Equal(t, Summary{Counts: v1alpha1.NamespaceCounts{Matched: 5}, Pending: 5}, results.Summary("t", 1))
	results.Record("a", "1", map[string]TemplateResult{"t": {Generation: 1, State: Populated}}, true)
	results.Record("b", "1", map[string]TemplateResult{
		"t": {State: Failed, HasDrifted: true, Failures: []failure{{"configmap/x", "no"}}},
	}, false)
	results.Record("c", "1", map[string]TemplateResult{"t": {State: Drifted, HasDrifted: true}}, true)
	results.Record("d", "1", map[string]TemplateResult{"t": {State: OptedOut}}, false)
	results.Record("e", "1", nil, false)
	require.Equal(t, Summary{
		Counts: v1alpha1.NamespaceCounts{Matched: 3, Updated: 1, Populated: 1, Failed: 1, Drifted: 2, OptedOut: 1},
		Failures: []v1alpha1.ObjectFailure{
			{Namespaces: []string{"b"}, Count: 1, Object: "configmap/x", Message: "no"},
		},
	}, results.Summary("t", 1))
	before := changed["t"]
	results.Record("a", "1", map[string]TemplateResult{"t": {Generation: 1, State: Populated}}, true)
	require.Equal(t, before, changed["t"], "nothing changed")
	results.Forget("a")
	require.ElementsMatch(t, []string{"b", "c", "d"}, results.ForgetTemplate("t"))
	require.Zero(t, results.Summary("t", 1).Counts)
}

func TestEqualFailuresAreListedOnce(t *testing.T) {
	results := NewResults(func(string, bool) {})
	for i := range 40 {
		failures := []failure{{"configmap/x", "no"}, {"configmap/" + strconv.Itoa(i), "no"}}
		results.Record(fmt.Sprintf("n%02d", i), "1",
			map[string]TemplateResult{"t": {State: Failed, Failures: failures}}, false)
	}
	failures := results.Summary("t", 1).Failures
	require.Len(t, failures, mostListed)
	require.Equal(t, v1alpha1.ObjectFailure{
		Namespaces: []string{"n00", "n01", "n02"}, Count: 40, Object: "configmap/x", Message: "no",
	}, failures[0])
	require.Equal(t, v1alpha1.ObjectFailure{
		Namespaces: []string{"n08"}, Count: 1, Object: "configmap/8", Message: "no",
	}, failures[9])
}

func TestResultsAreCompleteAfterEveryNamespaceIsReconciled(t *testing.T) {
	changed := map[string]int{}
	results := NewResults(func(template string, _ bool) { changed[template]++ })
	require.False(t, results.Complete("t"), "it was not opened")
	results.Start([]string{"a", "b"})
	results.Record("a", "1", map[string]TemplateResult{"t": {State: Populated}}, true)
	require.False(t, results.Complete("t"))
	require.False(t, results.Complete("selects none"))
	clear(changed)
	results.Forget("b")
	require.True(t, results.Complete("t"))
	require.Equal(t, map[string]int{"t": 1, "selects none": 1}, changed, "the status of every template is due")
}

// A namespace that waits for a template delays the statuses of the templates that select it, and of no other.
func TestResultsWaitForTheTemplatesOfANamespace(t *testing.T) {
	changed := map[string]int{}
	results := NewResults(func(template string, _ bool) { changed[template]++ })
	of := func(templates ...string) func() []string {
		return func() []string { return append([]string{}, templates...) }
	}
	results.Start([]string{"a", "b"})
	require.False(t, results.Complete("stuck"))
	require.False(t, results.Complete("healthy"))
	results.Waits("a", of("stuck", "beside"))
	for range 2 {
		results.Waits("b", func() []string { return nil })
	}
	require.Empty(t, changed, "nothing is known about b")
	results.Waits("b", of())
	require.Equal(t, map[string]int{"healthy": 1}, changed)
	require.True(t, results.Complete("healthy"))
	require.False(t, results.Complete("beside"))
	clear(changed)
	results.Waits("a", of("stuck"))
	require.Equal(t, map[string]int{"beside": 1}, changed)
	results.Waits("a", func() []string { return nil })
	require.Equal(t, map[string]int{"beside": 1}, changed, "nothing is known about a again")
	results.Record("a", "1", nil, true)
	require.Equal(t, map[string]int{"beside": 1, "stuck": 1}, changed)
	results.Waits("a", of("stuck"))
	require.True(t, results.Complete("stuck"), "it was reconciled before")
}

// A kind that does not answer at the start may have every namespace wait, each for a template of its own. The passes
// would take hours if each compared all templates with all namespaces.
func TestManyNamespacesThatWaitCostOnlyTheirOwnTemplates(t *testing.T) {
	const count = 10000
	changed := map[string]int{}
	results := NewResults(func(template string, isSettled bool) {
		if isSettled {
			changed[template]++
		}
	})
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("n%04d", i))
	}
	results.Start(names)
	for _, name := range append(names, "common") {
		require.False(t, results.Complete(name))
	}
	for range 2 {
		for _, name := range names {
			// A template that selects a namespace both before and after a move is named twice.
			results.Waits(name, func() []string { return []string{"common", name, name} })
		}
	}
	require.Empty(t, changed)
	for at, name := range names {
		results.Record(name, "1", nil, true)
		require.Equal(t, 1, changed[name])
		require.Equal(t, at == count-1, results.Complete("common"))
	}
	require.Len(t, changed, count+1)
	require.Empty(t, results.lacking)
}

// A namespace that was created and deleted during the start is not waited for, unless it is the predecessor of another.
func TestNamespacesThatEndBeforeTheirFirstPassAreForgotten(t *testing.T) {
	results := NewResults(func(string, bool) {})
	results.Start([]string{"a"})
	require.True(t, results.Created("a", "1", time.Now()))
	results.Forget("a")
	require.False(t, results.Complete("t"), "the cache may not have it yet")
	require.True(t, results.Deleted("a", "0"))
	require.False(t, results.Complete("t"), "its predecessor was deleted")
	require.True(t, results.Deleted("a", "1"))
	require.True(t, results.Complete("t"))
}

func TestResultsOfEarlierGenerationsAreIgnored(t *testing.T) {
	results := NewResults(func(string, bool) {})
	results.SetPending("t", 2, []string{"a"})
	results.Record("a", "1", map[string]TemplateResult{"t": {Generation: 1, State: Populated}}, true)
	require.Equal(t, 1, results.Summary("t", 1).Pending)
	results.Record("a", "1", map[string]TemplateResult{"t": {Generation: 2, State: Populated}}, true)
	require.Zero(t, results.Summary("t", 1).Pending)
	results.SetPending("t", 1, []string{"a"})
	require.Equal(t, 1, results.Summary("t", 1).Pending, "another template of this name was created")
}

// The cache has a new namespace before the events of it and of its predecessor arrive.
func TestTheLateDeletionOfAPredecessorForgetsNothing(t *testing.T) {
	results := NewResults(func(string, bool) {})
	populated := map[string]TemplateResult{"t": {State: Populated}}
	results.Record("a", "1", populated, true)
	results.Record("a", "2", populated, true)
	require.False(t, results.Deleted("a", "1"))
	require.EqualValues(t, 1, results.Summary("t", 0).Counts.Populated)
	require.True(t, results.Deleted("a", "2"))
	require.Zero(t, results.Summary("t", 0).Counts.Populated)
	require.True(t, results.Deleted("a", "2"), "it is unknown already")
}
