package diff

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The operator begins no rollout of a change that restores the revision that is rolled out completely.
func TestNotesOnPausedRollouts(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		state   v1alpha1.RolloutState
		rollout *v1alpha1.Rollout
		unless  string
	}{
		"no revisions":      {"", nil, ""},
		"complete":          {v1alpha1.RolloutComplete, nil, ""},
		"during a rollout":  {v1alpha1.RolloutPaused, nil, ", unless the change restores the revision that is rolled out completely"},
		"rollout in a file": {"", &v1alpha1.Rollout{}, ", unless the file sets spec.rollout.paused to false"},
		"the first rollout": {"first", nil, ""},
		"both": {
			v1alpha1.RolloutPaused, &v1alpha1.Rollout{}, ", unless the file sets spec.rollout.paused to false or the change " +
				"restores the revision that is rolled out completely",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
			stored := file.DeepCopy()
			file.Spec.Rollout = test.rollout
			switch test.state {
			case "":
			case "first":
				stored.Status.Revisions = []v1alpha1.TemplateRevision{{State: v1alpha1.RolloutPaused}}
			default:
				stored.Status.Revisions = []v1alpha1.TemplateRevision{{State: test.state}, {State: v1alpha1.RolloutComplete}}
			}
			require.Equal(t, "the rollout of template t is paused: existing namespaces get the change after 'kubectl nstpl "+
				"rollout resume t'"+test.unless+"; new ones get it at once, and grants that it removes end at once",
				pausedNote(file, stored))
		})
	}
	file := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t"}}
	file.Spec.Rollout = &v1alpha1.Rollout{Revocation: v1alpha1.RevokeWithRollout}
	require.NotContains(t, pausedNote(file, file), "grants that it removes end")
}
