package population

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/sources"
)

// A client that sees a new state of a rollout also sees the counts and the failures that led to it.
func TestAChangedRolloutIsCountedInTheSameStatus(t *testing.T) {
	results := NewResults(func(string, bool) {})
	results.Start(nil)
	results.Record("a", "1", map[string]TemplateResult{
		"t": {Generation: 2, State: Failed, Failures: []failure{{"configmap/x", "no"}}},
	}, false)
	results.Record("b", "1", map[string]TemplateResult{"t": {Generation: 1, State: Populated}}, true)
	templates := &Statuses{Results: results}
	stored := &v1alpha1.NamespaceTemplate{}
	stored.Name, stored.Generation = "t", 2
	stored.Status.Revisions = []v1alpha1.TemplateRevision{{Generation: 2, State: v1alpha1.RolloutProgressing}}

	unchanged := stored.Status.DeepCopy()
	templates.countForRollout(stored, unchanged)
	require.Equal(t, &stored.Status, unchanged, "its counts are written with its conditions")

	stopped := stored.Status.DeepCopy()
	stopped.Revisions[0].State = v1alpha1.RolloutStopped
	templates.countForRollout(stored, stopped)
	require.Equal(t, v1alpha1.NamespaceCounts{Matched: 2, Updated: 1, Populated: 1, Failed: 1}, stopped.Namespaces)
	require.Len(t, stopped.Failures, 1)

	begun := stored.Status.DeepCopy()
	begun.Revisions[0].Generation = 3
	templates.countForRollout(stored, begun)
	require.Zero(t, begun.Namespaces.Updated, "no namespace has the new revision yet")

	results.Start([]string{"c"}) // after a start, nothing is known about the namespaces
	started := stored.Status.DeepCopy()
	started.Revisions[0].State = v1alpha1.RolloutStopped
	templates.countForRollout(stored, started)
	require.Zero(t, started.Namespaces)
}

// A disabled template selects no namespace. It is neither populated nor ready.
func TestADisabledTemplateIsNotReady(t *testing.T) {
	results := NewResults(func(string, bool) {})
	results.Start(nil)
	templates := &Statuses{Results: results, Sources: &sources.Store{}}
	template := &v1alpha1.NamespaceTemplate{}
	template.Name, template.Generation = "t", 1
	ready := func() metav1.Condition {
		status := template.Status.DeepCopy()
		apimeta.SetStatusCondition(&status.Conditions, metav1.Condition{
			Type: v1alpha1.TemplateAccepted, Status: metav1.ConditionTrue, Reason: "Accepted",
		})
		templates.summarize(template, status)
		populated := *apimeta.FindStatusCondition(status.Conditions, v1alpha1.TemplatePopulated)
		ready := *apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		require.Equal(t, populated.Status, ready.Status)
		require.Equal(t, populated.Reason, ready.Reason)
		return ready
	}
	require.Equal(t, metav1.ConditionTrue, ready().Status)
	template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	require.Equal(t, metav1.ConditionFalse, ready().Status)
	require.Equal(t, reasonDisabled, ready().Reason)
	require.Contains(t, ready().Message, "policy/namespace-template-apply: disable")
}

func TestLongMessagesCutOffNoDelay(t *testing.T) {
	t.Parallel()
	const delay = "changes of the source secret/pull in namespace registry wait until noon"
	require.Equal(t, "two", withDelay("two", ""))
	require.Equal(t, "two; "+delay, withDelay("two", delay))
	for _, long := range []string{strings.Repeat("m", reporting.MaxMessage), strings.Repeat("é", reporting.MaxMessage)} {
		message := withDelay(long, delay)
		require.True(t, strings.HasSuffix(message, "…; "+delay), message)
		require.Equal(t, message, reporting.Shorten(message), "the condition Ready has the same message")
		require.Greater(t, len(message), reporting.MaxMessage-3)
	}
}
