package report

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

func TestPendingDeletionsOfARepository(t *testing.T) {
	x := contentsOf(1)
	why := func() string { return pendingDeletions(x)[0].Why }
	require.Equal(t, "namespaces are no longer in the tree: "+
		"'kubectl nstpl sync confirm corp 0a1b2c3' deletes them", why())
	x.repositories[0].Annotations = map[string]string{v1alpha1.ConfirmedCommitAnnotation: "4d5e6f7"}
	require.Contains(t, why(), "sync confirm corp 0a1b2c3", "another commit was confirmed")
	x.repositories[0].Annotations[v1alpha1.ConfirmedCommitAnnotation] = "0a1b2c3"
	require.Equal(t, "namespaces are no longer in the tree: their deletion is confirmed, and nstpl-sync has not finished it yet",
		why())
}

// What a report proposes must not run in another cluster. Its readers may have another current context, in which the
// same command would delete other namespaces.
func TestReportsProposeCommandsForTheirCluster(t *testing.T) {
	x := contentsOf(2)
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	session := cli.NewSession(streams)
	stopped := x.templates[0]
	stopped.Status.Revisions[0].Revision, stopped.Status.Revisions[0].State = 2, v1alpha1.RolloutStopped
	remedies := func(cluster string) string {
		x.cluster = cluster
		r := compute(x)
		r.selectCluster(session)
		text := r.PendingDeletions[0].Why + "\n"
		for _, f := range r.Findings {
			text += f.Remedy + "\n"
		}
		return text
	}
	require.Contains(t, remedies(""), "'kubectl nstpl diff shop-0000'")
	require.Contains(t, remedies("test"), "'kubectl nstpl diff shop-0000 --context test' shows the difference")
	require.Contains(t, remedies("test"), "'kubectl nstpl rollout undo base --context test', or correct the cause and run "+
		"'kubectl nstpl rollout restart base --context test'.")
	require.Contains(t, remedies("test"), "'kubectl nstpl sync confirm corp 0a1b2c3 --context test' deletes them")
	r := compute(x)
	r.Namespaces[0].Message = "grant that with 'kubectl create role x -n vault'"
	*session.Config.KubeConfig = "test.kubeconfig"
	r.selectCluster(session)
	require.Equal(t, "grant that with 'kubectl create role x -n vault --context test'", r.Namespaces[0].Message,
		"readers do not have the file")

	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	o := command{Session: cli.NewSession(streams), format: cli.FormatFlag{Format: cli.FormatJSON}}
	require.NoError(t, o.write([]Report{compute(x)}))
	require.Contains(t, out.String(), "'kubectl nstpl diff shop-0000' shows", "programs get no flags")
	out.Reset()
	o.format.Format = formatCSV
	require.NoError(t, o.write([]Report{compute(x)}))
	require.Contains(t, out.String(), "'kubectl nstpl diff shop-0000 --context test' shows")
}

func TestWhatTheDeletionOfATemplateWaitsFor(t *testing.T) {
	const other = "example.com/audit"
	for name, test := range map[string]struct {
		policy     v1alpha1.DeletionPolicy
		finalizers []string
		want       string
	}{
		"its objects": {
			v1alpha1.DeletionDelete, []string{v1alpha1.DeletionFinalizer},
			"is deleted when its objects in all namespaces are deleted",
		},
		"its objects and another finalizer": {
			v1alpha1.DeletionDelete, []string{other, v1alpha1.DeletionFinalizer},
			"is deleted when its objects in all namespaces are deleted and its other finalizers are removed: " + other,
		},
		"another finalizer, after its objects": {
			v1alpha1.DeletionDelete, []string{other}, "is deleted when its finalizers are removed: " + other,
		},
		"another finalizer, without its objects": {
			v1alpha1.DeletionOrphan, []string{other}, "is deleted when its finalizers are removed: " + other,
		},
		"the operator, which leaves the objects": {
			v1alpha1.DeletionOrphan, []string{v1alpha1.DeletionFinalizer},
			"is deleted when its finalizers are removed: " + v1alpha1.DeletionFinalizer,
		},
	} {
		t.Run(name, func(t *testing.T) {
			template := newTemplate("a", &metav1.LabelSelector{})
			template.DeletionTimestamp, template.Finalizers = &metav1.Time{Time: now}, test.finalizers
			template.Spec.DeletionPolicy = test.policy
			got := pendingDeletions(contents{templates: []*v1alpha1.NamespaceTemplate{template}})
			require.Len(t, got, 1)
			require.Equal(t, test.want, got[0].Why)
		})
	}
}

// What may pass by itself is a finding, too, if it has not passed: the tree may not be followed for a week.
func TestRepositoriesThatAreNotFollowed(t *testing.T) {
	ago := func(age time.Duration) metav1.Time { return metav1.NewTime(now.Add(-age)) }
	ready := func(status metav1.ConditionStatus, since metav1.Time) metav1.Condition {
		return metav1.Condition{
			Type: v1alpha1.ConditionReady, Status: status, Reason: "SourceUnavailable", LastTransitionTime: since,
		}
	}
	stalled := metav1.Condition{
		Type: v1alpha1.ConditionStalled, Status: metav1.ConditionTrue, Reason: "Invalid", LastTransitionTime: ago(0),
	}
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		created    metav1.Time
		want       string
	}{
		"in force":     {[]metav1.Condition{ready(metav1.ConditionTrue, ago(time.Hour))}, ago(time.Hour), ""},
		"source fails": {[]metav1.Condition{ready(metav1.ConditionFalse, ago(0))}, ago(time.Hour), ""},
		"source fails for long": {
			[]metav1.Condition{ready(metav1.ConditionFalse, ago(time.Hour))}, ago(time.Hour), "Warning SourceUnavailable",
		},
		"stalled": {
			[]metav1.Condition{ready(metav1.ConditionFalse, ago(0)), stalled}, ago(time.Hour), "Failure Invalid",
		},
		"new":                    {nil, ago(0), ""},
		"not reported on so far": {nil, ago(time.Hour), "Warning NotReported"},
	} {
		t.Run(name, func(t *testing.T) {
			repository := v1alpha1.PolicyRepository{}
			repository.CreationTimestamp = test.created
			repository.Status.Conditions = test.conditions
			got := ""
			for _, f := range compute(contents{time: now, repositories: []v1alpha1.PolicyRepository{repository}}).Findings {
				got += string(f.Severity) + " " + f.Reason
			}
			require.Equal(t, test.want, got)
		})
	}
}

// A remedy must have an effect, and what a template keeps in force depends on why it is not accepted.
func TestFindingsOfATemplate(t *testing.T) {
	stopped := []v1alpha1.TemplateRevision{{Revision: 2, State: v1alpha1.RolloutStopped}}
	paused := []v1alpha1.TemplateRevision{{Revision: 2, State: v1alpha1.RolloutPaused}}
	for name, test := range map[string]struct {
		isDisabled bool
		revisions  []v1alpha1.TemplateRevision
		refusal    string
		want       []string
	}{
		"stopped": {revisions: stopped, want: []string{"RolloutStopped: Take the change back with 'kubectl nstpl rollout " +
			"undo a', or correct the cause and run 'kubectl nstpl rollout restart a'."}},
		"paused": {revisions: paused, want: []string{
			"RolloutPaused: Run 'kubectl nstpl rollout resume a' to continue.",
		}},
		"stopped and disabled": {isDisabled: true, revisions: stopped},
		"paused and disabled":  {isDisabled: true, revisions: paused},
		"not accepted": {
			refusal: "Invalid", revisions: []v1alpha1.TemplateRevision{{Revision: 1, State: v1alpha1.RolloutComplete}},
			want: []string{"NotAccepted: Correct the template. The last accepted revision stays in force."},
		},
		"never accepted": {refusal: "Invalid", want: []string{
			"NotAccepted: Correct the template. Until then, it populates no namespace.",
		}},
		"not accepted because of a value": {
			refusal:   v1alpha1.TemplateValueNotProtected,
			revisions: []v1alpha1.TemplateRevision{{Revision: 1, State: v1alpha1.RolloutComplete}},
			want: []string{
				"NotAccepted: Correct the template. Meanwhile, the objects stay as they are in the namespaces whose revision " +
					"uses the value.",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			template := newTemplate("a", &metav1.LabelSelector{})
			template.Status.Revisions = test.revisions
			if test.isDisabled {
				template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
			}
			if test.refusal != "" {
				template.Status.Conditions = []metav1.Condition{{
					Type: v1alpha1.TemplateAccepted, Status: metav1.ConditionFalse, Reason: test.refusal,
				}}
			}
			_, findings := templateRow(template)
			var got []string
			for _, f := range findings {
				got = append(got, f.Reason+": "+f.Remedy)
			}
			require.Equal(t, test.want, got)
		})
	}
}
