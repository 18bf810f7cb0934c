package rollout

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// midway returns a template with three waves, of which the first is complete.
func midway(state v1alpha1.RolloutState, change func(*v1alpha1.NamespaceTemplate)) *v1alpha1.NamespaceTemplate {
	template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "budget", Generation: 4}}
	waves := []v1alpha1.Wave{{}, {PauseSeconds: 90}}
	template.Status.ObservedGeneration = 4
	template.Status.Namespaces = v1alpha1.NamespaceCounts{Matched: 200, Updated: 40, Populated: 199}
	template.Status.Revisions = []v1alpha1.TemplateRevision{
		{Name: "budget-3", Revision: 3, State: state, Waves: waves, Wave: 1},
		{Name: "budget-2", Revision: 2, State: "Complete"},
	}
	if change != nil {
		change(template)
	}
	return template
}

func disable(template *v1alpha1.NamespaceTemplate) {
	template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
}

func TestProgressOfARollout(t *testing.T) {
	for name, test := range map[string]struct {
		template *v1alpha1.NamespaceTemplate
		want     progress
	}{
		"of an edit that the operator has not seen": {
			midway("Complete", func(t *v1alpha1.NamespaceTemplate) { t.Generation = 5 }),
			progress{line: "Waiting for template spec update to be observed..."},
		},
		"of an edit whose revision cannot be stored": {
			midway("Complete", func(t *v1alpha1.NamespaceTemplate) {
				t.Generation = 5
				t.Status.Conditions = []metav1.Condition{{
					Type: "Ready", Status: "False", Reason: "RevisionNotStored", ObservedGeneration: 5,
					Message: "the last change is not rolled out, because its revision cannot be stored: quota exceeded",
				}}
			}),
			progress{line: "Waiting for template spec update to be observed: the last change is not rolled out, because its " +
				"revision cannot be stored: quota exceeded..."},
		},
		"without a revision": {
			midway("Complete", func(t *v1alpha1.NamespaceTemplate) { t.Status.Revisions = nil }),
			progress{line: "Waiting for template rollout to begin..."},
		},
		"of a restart that the operator has not seen": {
			midway("Stopped", func(t *v1alpha1.NamespaceTemplate) {
				t.Annotations = map[string]string{v1alpha1.RestartedAtAnnotation: "2026-01-02T03:04:05Z"}
			}),
			progress{line: "Waiting for template restart to be observed..."},
		},
		"in a wave": {
			midway("Progressing", nil),
			progress{line: `Waiting for template "budget" rollout to finish: ` +
				`40 of 200 namespaces have been updated (wave 2 of 3)...`},
		},
		"without waves": {
			midway("Progressing", func(t *v1alpha1.NamespaceTemplate) { t.Status.Revisions[0].Waves = nil }),
			progress{line: `Waiting for template "budget" rollout to finish: ` +
				`40 of 200 namespaces have been updated...`},
		},
		"with namespaces that are not populated yet": {
			midway("Progressing", func(t *v1alpha1.NamespaceTemplate) { t.Status.Namespaces.Updated = 200 }),
			progress{line: `Waiting for template "budget" rollout to finish: ` +
				`199 of 200 updated namespaces are populated...`},
		},
		"with a namespace that fails, and may hold the rollout": {
			midway("Progressing", func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Namespaces.Failed = 1
				t.Status.Failures = []v1alpha1.ObjectFailure{
					{Object: "configmap/contact", Namespaces: []string{"team-x"}, Count: 1, Message: "failed calling webhook"},
				}
			}),
			progress{line: `Waiting for template "budget" rollout to finish: ` +
				`40 of 200 namespaces have been updated (wave 2 of 3); 1 namespace failed; ` +
				`configmap/contact in team-x: failed calling webhook...`},
		},
		"between two waves": {
			midway("Waiting", func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Revisions[0].WaveTime = &metav1.Time{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
			}),
			progress{line: `Waiting for template "budget" rollout to finish: 40 of 200 namespaces have been updated ` +
				`(wave 2 of 3 is complete, the next begins at 2026-01-02T03:05:35Z)...`},
		},
		"that is paused": {
			midway("Paused", nil),
			progress{line: `Waiting for template "budget" rollout to finish: 40 of 200 namespaces have been updated, ` +
				`and the rollout is paused: run 'kubectl nstpl rollout resume budget' to continue...`},
		},
		"that is complete": {
			midway("Complete", nil),
			progress{line: `template "budget" successfully rolled out`, isDone: true},
		},
		"that is complete before the namespaces are populated": {
			midway("Complete", func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Conditions = []metav1.Condition{{Type: "Populated", Status: "False", Reason: "Populating"}}
				t.Status.Revisions[0].Waves = nil
			}),
			progress{line: `Waiting for template "budget" rollout to finish: ` +
				`40 of 200 namespaces have been updated...`},
		},
		"that is complete although a namespace failed": {
			midway("Complete", func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Namespaces.Failed = 1
				t.Status.Failures = []v1alpha1.ObjectFailure{{Namespaces: []string{"a"}, Count: 1, Message: "invalid"}}
			}),
			progress{
				line: `template "budget" rolled out, but 1 of 200 namespaces failed`, isDone: true,
				note: "1 namespace failed; in a: invalid",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := newProgress(test.template, 0)
			require.NoError(t, err)
			require.Equal(t, test.want, got)
		})
	}
}

func TestARolloutThatCannotGoOnIsAnError(t *testing.T) {
	for name, test := range map[string]struct {
		template *v1alpha1.NamespaceTemplate
		pinned   int64
		want     string
	}{
		"since the template is being deleted": {
			midway("Progressing", func(t *v1alpha1.NamespaceTemplate) { t.DeletionTimestamp = &metav1.Time{} }), 0,
			`template "budget" is being deleted`,
		},
		"since the template was created disabled": {
			midway("Progressing", disable), 0,
			`template "budget" selects no namespaces, and is not rolled out: the template is disabled ` +
				`(annotation policy/namespace-template-apply: disable)`,
		},
		"since the template was disabled after its rollout": {
			midway("Complete", disable), 3,
			`template "budget" selects no namespaces, and is not rolled out: the template is disabled ` +
				`(annotation policy/namespace-template-apply: disable)`,
		},
		"since the template is not accepted": {
			midway("Progressing", func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "False", Message: "no such kind"}}
			}), 0,
			`template "budget" is not accepted, so it is not rolled out: no such kind`,
		},
		"since another revision is the newest": {
			midway("Progressing", nil), 2,
			`desired revision (2) is different from the running revision (3)`,
		},
		"since namespaces failed": {
			midway("Stopped", func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Namespaces.Failed = 5
				t.Status.Revisions[0].FailedBefore = 1
				t.Status.Failures = []v1alpha1.ObjectFailure{
					{
						Namespaces: []string{"a", "b", "c"}, Count: 4, Object: "limitrange/sizes",
						Message: "invalid:\nmin",
					},
					{Namespaces: []string{"d"}, Count: 1, Message: "forbidden"},
				}
			}), 3,
			`rollout of revision 3 of template "budget" stopped after 40 of 200 namespaces: ` +
				`5 namespaces failed (1 had failed before the rollout)
  limitrange/sizes in a, b, c and 1 more: invalid: min
  in d: forbidden
To take the change back: kubectl nstpl rollout undo budget
After you corrected the cause: kubectl nstpl rollout restart budget`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newProgress(test.template, test.pinned)
			require.EqualError(t, err, test.want)
		})
	}
}
