package population

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// One write corrects the labels of all templates. A fight over a label of one of them is in the status of that template
// only.
func TestAFightOverALabelIsInTheStatusOfItsTemplate(t *testing.T) {
	t.Parallel()
	labelling := func(name string) *v1alpha1.NamespaceTemplate {
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: name}}
		template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
		labels := map[string]string{"of-" + name: "declared"}
		template.Spec.NamespaceMetadata = &v1alpha1.NamespaceMetadata{Labels: labels}
		return template
	}
	templates := []*v1alpha1.NamespaceTemplate{labelling("a"), labelling("b"), labelling("c")}
	planned := func(labels map[string]string) populate.Plan {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "1", Labels: labels}}
		declared := populate.Declare(render.NewCache(), ns, templates, populate.Inputs{})
		return populate.NewPlan(declared, match.NewIndex(templates...), populate.Observed{})
	}
	r := &Namespaces{
		Fights: backoff.NewFights[string, populate.Subject](), Metrics: NewMetrics(prometheus.NewRegistry()),
		Queue: queue.New(&backoff.Queues{}),
	}
	t.Cleanup(r.Queue.ShutDown)
	fight := func(labels map[string]string) map[string]populate.Finding {
		plan := planned(labels)
		found := map[string]populate.Finding{}
		result := populate.Result{Outcomes: []populate.Outcome{{Change: plan.Changes[0]}}}
		for _, finding := range r.fought(t.Context(), plan, result) {
			require.NotContains(t, found, finding.Template)
			found[finding.Template] = finding
		}
		results := templateResults(plan, slices.Collect(maps.Values(found)), nil, nil)
		for _, template := range templates {
			state := Populated
			if _, isFought := found[template.Name]; isFought {
				state = Drifted
			}
			require.Equal(t, state, results[template.Name].State, template.Name)
		}
		return found
	}
	var found map[string]populate.Finding
	for range 20 {
		found = fight(map[string]string{"of-a": "rival", "of-b": "declared"})
	}
	require.Len(t, found, 1)
	require.Contains(t, found["a"].Message, "label of-a is changed again and again by another client, ")
	require.Len(t, fight(map[string]string{"of-b": "once"}), 1, "a label that was changed once is not fought over")
	for range 20 {
		found = fight(map[string]string{"of-c": "rival"})
	}
	require.Len(t, found, 2)
	require.Contains(t, found["c"].Message, "label of-c is changed ")
	require.True(t, r.postpone(planned(map[string]string{"of-b": "rival"})).Changes[0].Postponed,
		"one write corrects all labels, so a fight over many does not cause more writes")
	require.Len(t, r.Fights.In("team-a", time.Now()), 2)
}
