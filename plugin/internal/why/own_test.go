package why

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A commit is called in force only if the status describes the repository as it is, and names no other commit.
func TestExplainRepository(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	first, second := strings.Repeat("1", 40), strings.Repeat("2", 40)
	for name, test := range map[string]struct {
		change  func(*v1alpha1.PolicyRepository)
		summary string
		facts   []string
	}{
		"in force": {func(*v1alpha1.PolicyRepository) {}, "has commit " + first + " in force", nil},
		"changed since": {
			func(r *v1alpha1.PolicyRepository) { r.Generation++ },
			"was changed, and nstpl-sync has not reported on the change yet", nil,
		},
		"never seen": {
			func(r *v1alpha1.PolicyRepository) { r.Status = v1alpha1.PolicyRepositoryStatus{} },
			"was changed, and nstpl-sync has not reported on the change yet", nil,
		},
		"suspended": {func(r *v1alpha1.PolicyRepository) { r.Spec.Suspend = true }, "is suspended", nil},
		"not fetched": {
			func(r *v1alpha1.PolicyRepository) { r.Status.Commits = v1alpha1.RepositoryCommits{} }, "has no commit yet", nil,
		},
		"fetched only": {
			func(r *v1alpha1.PolicyRepository) { r.Status.Commits.Applied = "" },
			"commit " + first + " is fetched, and none was applied completely", nil,
		},
		"a newer commit is applied in part": {
			func(r *v1alpha1.PolicyRepository) { r.Status.Commits.Fetched, r.Status.Commits.Vetted = second, second },
			"has commit " + first + " as the last one that was applied completely; commit " + second + " is fetched", nil,
		},
		"a newer commit breaks a rule": {
			func(r *v1alpha1.PolicyRepository) {
				r.Status.Commits.Fetched = second
				r.Status.Violations = []v1alpha1.RepositoryViolation{{Path: "corp/a.yaml", Line: 3, Message: "no"}}
			},
			"has commit " + first + " in force; commit " + second + " is fetched and not applied", []string{"corp/a.yaml:3: no"},
		},
		"an object failed": {
			func(r *v1alpha1.PolicyRepository) {
				r.Status.Failures = []v1alpha1.RepositoryFailure{{Object: "namespace/a", Message: "denied"}}
			},
			"has commit " + first + " in force", []string{"namespace/a: denied"},
		},
		"deletions wait": {
			func(r *v1alpha1.PolicyRepository) {
				r.Status.PendingDeletions = &v1alpha1.PendingDeletions{Namespaces: []string{"a", "b"}, Total: 30}
			},
			"has commit " + first + " in force", []string{"the deletion of 30 namespaces waits for a person"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repository := &v1alpha1.PolicyRepository{
				ObjectMeta: metav1.ObjectMeta{Name: "corp", Generation: 2},
				Status: v1alpha1.PolicyRepositoryStatus{
					ObservedGeneration: 2, Commits: v1alpha1.RepositoryCommits{Fetched: first, Vetted: first, Applied: first},
				},
			}
			test.change(repository)
			a := answer{}
			require.Equal(t, test.summary, explainRepository(&a, repository, now))
			var states []string
			for _, f := range a.Facts {
				if f.Label == labelState {
					states = append(states, f.Text)
				}
			}
			require.Equal(t, test.facts, states)
			require.Contains(t, a.Facts, fact{labelRemedy, "'kubectl nstpl sync status corp' says what to do."})
		})
	}
}

// What the stored spec selects is not what is in force, unless the newest revision is rolled out completely.
func TestExplainTemplate(t *testing.T) {
	t.Parallel()
	accepted := func(status metav1.ConditionStatus, reason string) []metav1.Condition {
		return []metav1.Condition{{Type: v1alpha1.TemplateAccepted, Status: status, Reason: reason, Message: "message"}}
	}
	const delay = "changes of the source configmap/a in namespace vault wait until 2026-11-30T12:00:00Z, so that its " +
		"copies do not fill etcd"
	const selects, stored = "selects the namespaces with labels a=b", "its stored spec selects the namespaces with labels a=b"
	for name, test := range map[string]struct {
		change           func(*v1alpha1.NamespaceTemplate)
		summary, selects string
		remedy           string
	}{
		"in force": {
			func(*v1alpha1.NamespaceTemplate) {}, "is accepted; the rollout of revision 2 is complete", selects,
			"follows the rollout",
		},
		"in force, and changes of its sources wait": {
			func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Conditions = append(t.Status.Conditions, metav1.Condition{
					Type: v1alpha1.TemplatePopulated, Status: metav1.ConditionTrue, Message: "populated; " + delay,
				})
			}, "is accepted; the rollout of revision 2 is complete", delay, "follows the rollout",
		},
		"paused": {
			func(t *v1alpha1.NamespaceTemplate) { t.Status.Revisions[0].State = v1alpha1.RolloutPaused },
			"is accepted; the rollout of revision 2 is paused", stored, "follows the rollout",
		},
		"disabled": {
			func(t *v1alpha1.NamespaceTemplate) {
				t.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
			},
			"selects no namespaces: the template is disabled (annotation policy/namespace-template-apply: disable)", stored, "",
		},
		"changed since": {
			func(t *v1alpha1.NamespaceTemplate) { t.Generation++ },
			"was changed, and the operator has not reported on the change yet", stored, "",
		},
		"changed since, and its revision cannot be stored": {
			func(t *v1alpha1.NamespaceTemplate) {
				t.Generation++
				t.Status.Conditions = append(t.Status.Conditions, metav1.Condition{
					Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "RevisionNotStored",
					ObservedGeneration: t.Generation, Message: "the last change is not rolled out: no",
				})
			},
			"was changed: the last change is not rolled out: no", stored, "",
		},
		"not accepted": {
			func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Conditions = accepted(metav1.ConditionFalse, "Invalid")
			},
			"is not accepted: message", stored, "The last accepted revision stays in force.",
		},
		"never accepted": {
			func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Conditions, t.Status.Revisions = accepted(metav1.ConditionFalse, "Invalid"), nil
			},
			"is not accepted: message", stored, "Until then, it populates no namespace.",
		},
		"not accepted because of a value": {
			func(t *v1alpha1.NamespaceTemplate) {
				t.Status.Conditions = accepted(metav1.ConditionFalse, v1alpha1.TemplateValueNotProtected)
			},
			"is not accepted: message", stored, "Meanwhile, the objects stay as they are in the namespaces whose revision uses the value.",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 2}}
			template.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			template.Status = v1alpha1.NamespaceTemplateStatus{
				ObservedGeneration: 2, Conditions: accepted(metav1.ConditionTrue, "Accepted"),
				Revisions: []v1alpha1.TemplateRevision{{Revision: 2, State: v1alpha1.RolloutComplete}},
			}
			test.change(template)
			a := answer{}
			require.Equal(t, test.summary, explainTemplate(&a, template, time.Time{}))
			require.Contains(t, a.Facts, fact{labelState, test.selects})
			remedies := ""
			for _, f := range a.Facts {
				if f.Label == labelRemedy {
					remedies += f.Text
				}
			}
			require.Contains(t, remedies, test.remedy)
		})
	}
}
