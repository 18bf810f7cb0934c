package why

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

func TestAddState(t *testing.T) {
	t.Parallel()
	const awaiting = -2 // no template selects it, and one will
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	type option = func(*corev1.Namespace)
	condition := func(status corev1.ConditionStatus, reason string) option {
		return func(ns *corev1.Namespace) {
			ns.Status.Conditions = []corev1.NamespaceCondition{{
				Type: v1alpha1.NamespacePopulated, Status: status, Reason: reason, Message: "message",
				LastTransitionTime: metav1.NewTime(now.Add(-time.Minute)),
			}}
		}
	}
	pending := func(initializers string) option {
		return func(ns *corev1.Namespace) {
			ns.Labels = map[string]string{v1alpha1.InitializingLabel: "true"}
			ns.Annotations = map[string]string{v1alpha1.PendingAnnotation: initializers}
		}
	}
	optOut := func(value string) option {
		return func(ns *corev1.Namespace) { ns.Annotations = map[string]string{v1alpha1.OptOutAnnotation: value} }
	}
	for name, test := range map[string]struct {
		options   []option
		selecting int
		summary   string
		states    []string
	}{
		"populated": {
			[]option{condition(corev1.ConditionTrue, populate.ConditionPopulated)}, 1, "namespace/n is populated",
			[]string{"Populated for 60s: message"},
		},
		"opted out": {
			[]option{optOut("true")}, 0,
			"namespace/n is not populated: the namespace is opted out (annotation " + v1alpha1.OptOutAnnotation + ")", nil,
		},
		"opted out of a template": {
			[]option{optOut("a"), condition(corev1.ConditionTrue, populate.ConditionPopulated)}, 1,
			"namespace/n is populated", []string{"Populated for 60s: message", "opted out of 1 template: a"},
		},
		"held": {
			[]option{pending("network")}, 0, "namespace/n has been held for 2m: it waits for network", nil,
		},
		"held, and retried": {
			[]option{pending(v1alpha1.TemplateInitializer), condition(corev1.ConditionFalse, populate.ConditionRetrying)}, 1,
			"namespace/n has been held for 2m: it waits for namespace-template", []string{
				"namespace-template is the operator, which populates the namespace", "Retrying for 60s: message",
			},
		},
		"failed when it was new": {
			[]option{pending(v1alpha1.TemplateInitializer), condition(corev1.ConditionFalse, populate.ConditionObjectsFailed)},
			1, "namespace/n could not be populated, so writes into it are denied",
			[]string{"ObjectsFailed for 60s: message"},
		},
		"failed later": {
			[]option{condition(corev1.ConditionFalse, populate.ConditionObjectsFailed)}, 1,
			"namespace/n does not have all objects that templates declare", []string{"ObjectsFailed for 60s: message"},
		},
		"without a template": {nil, 0, "namespace/n is not populated: no template selects it", nil},
		"before the rollout of a template": {
			nil, awaiting, "namespace/n is not populated yet: it waits for the rollout of t", nil,
		},
		"not reported":           {nil, 1, "namespace/n: the operator has not reported on it", nil},
		"with unknown templates": {nil, -1, "namespace/n: the operator has not reported on it", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "n", CreationTimestamp: metav1.NewTime(now.Add(-2 * time.Minute)),
			}}
			for _, set := range test.options {
				set(ns)
			}
			a := answer{Subject: "namespace/n"}
			if test.selecting == awaiting {
				a.awaited, test.selecting = []string{"t"}, 0
			}
			addState(&a, ns, test.selecting, now)
			require.Equal(t, test.summary, a.Summary)
			var states []string
			for _, f := range a.Facts {
				if f.Label == labelState {
					states = append(states, f.Text)
				}
			}
			require.Equal(t, test.states, states)
		})
	}
}

// What to do about a namespace that could not be populated depends on the reason, in a message of admission, too.
func TestRemediesOfFailures(t *testing.T) {
	t.Parallel()
	const opens = " The operator tries again by itself, and the namespace opens once it is populated."
	const general = "Ask the user whom the message names, such as an administrator of the template, to correct the cause."
	for reason, want := range map[string]string{
		populate.ConditionObjectsFailed:       general,
		populate.ConditionTemplateNotAccepted: "Correct the template that the message names." + opens,
		populate.ConditionValueMissing: "Have a user who may set the label or annotation set it: 'kubectl nstpl " +
			"attributes' lists the roles." + opens,
		populate.ConditionPolicySpaceNotFound: "Create the policy space, or correct the label " +
			"policy.nstpl.dev/policyspace of the namespace or the parent of the policy space." + opens,
		populate.ConditionNotAdopted: "See what would be deleted with 'kubectl nstpl diff --tree DIR', then run 'kubectl " +
			"annotate namespace n policy.nstpl.dev/adopt=true', or take the namespace out of the policy space." + opens,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: "n", Labels: map[string]string{v1alpha1.InitializingLabel: "true"},
				Annotations: map[string]string{v1alpha1.PendingAnnotation: v1alpha1.TemplateInitializer},
			}}
			ns.Status.Conditions = []corev1.NamespaceCondition{{
				Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionFalse, Reason: reason, Message: "message",
			}}
			a := answer{Subject: "namespace/n"}
			addState(&a, ns, 1, time.Now())
			explained, err := (&explainer{missing: new("")}).message(t.Context(), "namespace n could not be populated, and "+
				"writes into it are denied until a person acts: "+reason+": message (nstpl:population-failed)")
			require.NoError(t, err)
			for _, facts := range [][]fact{a.Facts, explained.Facts} {
				require.Contains(t, facts, fact{labelRemedy, want})
				hasAdministrator := slices.ContainsFunc(facts, func(f fact) bool { return f.Label == labelAdministrator })
				require.Equal(t, want == general, hasAdministrator)
			}
		})
	}
}
