package rollout

import (
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// revision returns a revision with a number and a name, whose spec depends only on the drift policy.
func revision(number int64, name string, policy string) cluster.Revision {
	return cluster.Revision{
		ControllerRevision: &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Name: name}, Revision: number},
		Spec:               specWith(policy),
	}
}

func specWith(policy string) map[string]any {
	return map[string]any{
		"namespaces":  map[string]any{"labelSelector": map[string]any{}},
		"driftPolicy": policy,
	}
}

func TestPreviousIsTheNewestOtherRevisionThatIsComplete(t *testing.T) {
	revisions := []cluster.Revision{
		revision(4, "d", "D"), revision(3, "c", "C"), revision(2, "b", "B"), revision(1, "a", "A"),
	}
	for name, test := range map[string]struct {
		states  []v1alpha1.TemplateRevision
		current string
		want    int64
	}{
		"a stopped revision after superseded ones": {
			[]v1alpha1.TemplateRevision{
				{Name: "d", State: "Stopped"}, {Name: "c", State: "Superseded"}, {Name: "b", State: "Complete"},
			}, "D", 2,
		},
		"a complete revision": {
			[]v1alpha1.TemplateRevision{{Name: "d", State: "Complete"}}, "D", 3,
		},
		"a spec that the operator has not seen": {
			[]v1alpha1.TemplateRevision{{Name: "d", State: "Complete"}}, "E", 4,
		},
		"an earlier spec, not seen by the operator": {
			[]v1alpha1.TemplateRevision{{Name: "d", State: "Complete"}}, "B", 4,
		},
		"a spec of which the status knows no states": {nil, "D", 3},
	} {
		t.Run(name, func(t *testing.T) {
			template := &v1alpha1.NamespaceTemplate{Status: v1alpha1.NamespaceTemplateStatus{Revisions: test.states}}
			got, err := previous(template, specWith(test.current), revisions)
			require.NoError(t, err)
			require.Equal(t, test.want, got.Revision)
		})
	}
}

func TestPreviousNeedsARevisionWithAnotherSpec(t *testing.T) {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "budget"}}
	_, err := previous(template, specWith("A"), []cluster.Revision{revision(1, "a", "A")})
	require.EqualError(t, err, `template "budget" has no earlier revision to roll back to: `+
		`correct its spec, or switch it off with the annotation policy/namespace-template-apply: disable`)
}

func TestSameSpecIgnoresSettingsAndEmptyFields(t *testing.T) {
	with := func(field string, value any) map[string]any {
		spec := specWith("Correct")
		spec[field] = value
		return spec
	}
	require.True(t, sameSpec(specWith("Correct"), with("rollout", map[string]any{"paused": true})))
	require.True(t, sameSpec(specWith("Correct"), with("revisionHistoryLimit", int64(3))))
	require.True(t, sameSpec(specWith("Correct"), with("overlays", []any{})))
	require.False(t, sameSpec(specWith("Correct"), with("driftPolicy", "Report")))
	require.False(t, sameSpec(specWith("Correct"), with("templates", []any{map[string]any{"kind": "ConfigMap"}})))
}

// A revision cannot set how the rollback itself is rolled out, even if its data has such fields.
func TestARollbackKeepsTheSettingsOfTheTemplate(t *testing.T) {
	forged := specWith("Correct")
	forged["rollout"], forged["revisionHistoryLimit"] = map[string]any{"maxFailures": "100%"}, int64(0)
	current := specWith("Report")
	current["rollout"] = map[string]any{"paused": true}
	require.Equal(t, map[string]any{
		"namespaces":  map[string]any{"labelSelector": map[string]any{}},
		"driftPolicy": "Correct",
		"rollout":     map[string]any{"paused": true},
	}, withSettings(forged, current))
}

// Namespaces get a spec immediately if another revision with the same spec is rolled out completely, too.
func TestARollbackToACompleteSpec(t *testing.T) {
	revisions := []cluster.Revision{
		revision(4, "d", "C"), revision(3, "c", "A"), revision(2, "b", "B"), revision(1, "a", "A"),
	}
	template := &v1alpha1.NamespaceTemplate{Status: v1alpha1.NamespaceTemplateStatus{
		Revisions: []v1alpha1.TemplateRevision{{Name: "d", State: "Paused"}, {Name: "c", State: "Complete"}},
	}}
	require.True(t, isComplete(template, specWith("A"), revisions))
	require.False(t, isComplete(template, specWith("B"), revisions))
	require.False(t, isComplete(template, specWith("C"), revisions))
}

func TestWarningsOfARollback(t *testing.T) {
	for name, test := range map[string]struct {
		rollout    map[string]any
		isComplete bool
		want       string
	}{
		"not paused": {nil, false, ""},
		"paused, to a complete revision": {map[string]any{"paused": true}, true,
			"Warning: namespaces that have a later revision of template \"budget\" get the rollback immediately, although " +
				"the rollout is paused\n"},
		"paused, to another revision": {map[string]any{"paused": true}, false,
			"Warning: the rollout of template \"budget\" is paused: existing namespaces get the rollback after " +
				"'kubectl nstpl rollout resume budget'\n"},
	} {
		t.Run(name, func(t *testing.T) {
			streams, _, _, errOut := genericiooptions.NewTestIOStreams()
			o := undo{Session: cli.NewSession(streams)}
			o.warn(templateWith(test.rollout), test.isComplete)
			require.Equal(t, test.want, errOut.String())
		})
	}
}
