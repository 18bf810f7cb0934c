package cluster

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

// Namespaces get the revisions that are stored, and not a spec that is not accepted or has no revision.
func TestLayersAreThoseThatAreStored(t *testing.T) {
	t.Parallel()
	created := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "n", UID: "u", CreationTimestamp: metav1.NewTime(created),
	}}
	condition := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: "why", ObservedGeneration: 3}
	}
	accepted := condition(v1alpha1.TemplateAccepted, metav1.ConditionTrue, "Accepted")
	for name, test := range map[string]struct {
		observed   int64
		conditions []metav1.Condition
		read       []string
		newest     v1alpha1.DriftPolicy
	}{
		"accepted": {3, []metav1.Condition{accepted}, nil, "stored"},
		"not accepted": {
			3, []metav1.Condition{condition(v1alpha1.TemplateAccepted, metav1.ConditionFalse, "Invalid")}, []string{"t-2"}, "t-2",
		},
		"not observed": {2, []metav1.Condition{accepted}, []string{"t-2"}, "t-2"},
		"not stored": {
			2, []metav1.Condition{accepted, condition(v1alpha1.ConditionReady, metav1.ConditionFalse, rollout.ReasonNotStored)},
			[]string{"t-2"}, "t-2",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{
				Name: "t", Generation: 3, CreationTimestamp: metav1.NewTime(created.Add(time.Hour)),
			}}
			template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{}
			template.Spec.DriftPolicy = "stored"
			generation := int64(2)
			if test.read == nil {
				generation = 3
			}
			template.Status = v1alpha1.NamespaceTemplateStatus{
				ObservedGeneration: test.observed, Conditions: test.conditions,
				Revisions: []v1alpha1.TemplateRevision{
					{Name: "t-2", Revision: 2, Generation: generation, State: v1alpha1.RolloutPaused},
					{Name: "t-1", Revision: 1, Generation: 1, State: v1alpha1.RolloutPaused},
				},
			}
			for i := range template.Status.Revisions {
				template.Status.Revisions[i].StartTime = template.CreationTimestamp
			}
			var read []string
			layers, err := layersOf(template, func(layers rollout.Layers, layer *rollout.Layer) bool {
				return layers.For(ns) == layer
			}, func(name string) (*v1alpha1.NamespaceTemplateSpec, error) {
				read = append(read, name)
				spec := template.Spec.DeepCopy()
				spec.DriftPolicy = v1alpha1.DriftPolicy(name)
				return spec, nil
			})
			require.NoError(t, err)
			require.Equal(t, test.read, read)
			require.Equal(t, test.newest, layers[0].Template.Spec.DriftPolicy)
			index := match.NewIndex()
			index.SetLayers(template, layers)
			require.Empty(t, index.Match(ns))
			require.Len(t, index.Ahead(ns), 1, "the rollout has not reached the namespace")
			require.Equal(t, test.read != nil, HasUnacceptedChange(template))
		})
	}
}
