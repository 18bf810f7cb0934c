package check

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// own returns an object with conditions that changed some time ago.
func own(name string, since time.Duration, conditions ...metav1.Condition) *ownObject {
	object := &ownObject{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(now.Add(-since))}}
	for i := range conditions {
		conditions[i].LastTransitionTime = metav1.NewTime(now.Add(-since))
	}
	object.Status.Conditions = conditions
	return object
}

func is(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

func stalled(reason, message string) []metav1.Condition {
	return []metav1.Condition{
		is(v1alpha1.ConditionReady, metav1.ConditionFalse, reason, message),
		is(v1alpha1.ConditionStalled, metav1.ConditionTrue, reason, message),
	}
}

func TestObjectsOfOwnKinds(t *testing.T) {
	t.Parallel()
	isReady := is(v1alpha1.ConditionReady, metav1.ConditionTrue, "Ready", "")
	notReady := is(v1alpha1.ConditionReady, metav1.ConditionFalse, "Waiting", "waits for its parent")
	failing := own("budget", time.Hour, stalled("Failed", "1 of 3 namespaces are populated")...)
	failing.Status.Failures = []ownFailure{{Object: "limitrange/defaults", Message: "is forbidden"}, {Message: "another"}}
	leaving := own("old", time.Hour, isReady)
	leaving.DeletionTimestamp, leaving.Finalizers = &metav1.Time{Time: now.Add(-time.Hour)}, []string{"policy.nstpl.dev/x"}
	disabled := own("off", time.Hour, stalled("RolloutStopped", "the rollout stopped")...)
	disabled.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
	notAccepted := own("off", time.Hour, stalled("Invalid", "does not compile")...)
	notAccepted.Annotations = disabled.Annotations
	namespaced := own("env", time.Hour, stalled("Invalid", "no role")...)
	namespaced.Namespace = "team-a"
	edited := own("budget", time.Hour, stalled("Failed", "1 of 3 namespaces are populated")...)
	edited.Generation, edited.Status.Failures = 3, failing.Status.Failures
	for i := range edited.Status.Conditions {
		edited.Status.Conditions[i].ObservedGeneration = 2
	}
	readyBefore := own("a", time.Hour, isReady, is(exceeded, metav1.ConditionTrue, "Exceeded", "pods: 5/3"))
	readyBefore.Generation, readyBefore.Status.Conditions[0].ObservedGeneration = 3, 2
	readyJustBefore := own("a", time.Hour, isReady)
	readyJustBefore.Generation, readyJustBefore.Status.Conditions[0].ObservedGeneration = 3, 2
	readyJustBefore.ManagedFields = []metav1.ManagedFieldsEntry{
		{Time: &metav1.Time{Time: now.Add(-time.Hour)}}, {Time: &metav1.Time{Time: now.Add(-time.Second)}},
	}
	reported := own("a", time.Hour, isReady)
	reported.Generation, reported.Status.Conditions[0].ObservedGeneration = 3, 2
	reported.ManagedFields = []metav1.ManagedFieldsEntry{
		{Time: &metav1.Time{Time: now.Add(-time.Hour)}}, {Time: &metav1.Time{Time: now}, Subresource: "status"},
	}
	readyNow := own("a", time.Hour, isReady)
	readyNow.Generation, readyNow.Status.Conditions[0].ObservedGeneration = 3, 3
	unmatched := own("old", 0, stalled(v1alpha1.ExemptionNothingMatches, "template budget does not exist")...)
	unmatched.Namespace = "team-a"
	for name, test := range map[string]struct {
		resource        string
		objects         []*ownObject
		status          Status
		message, remedy string
	}{
		"in force": {"policyspaces", []*ownObject{own("a", 0, isReady)}, OK, "1 object of nstpl's kinds, and none has a problem", ""},
		"stalled": {
			"namespacetemplates", []*ownObject{failing}, Failure, "namespacetemplates: 1 cannot be in force until a person acts: " +
				"budget (1 of 3 namespaces are populated; limitrange/defaults: is forbidden)", "kubectl describe namespacetemplates budget",
		},
		"ready before an edit": {
			"policyspaces", []*ownObject{readyBefore}, Warning,
			"1 not in force yet: a (the controller has not reported on generation 3, which may be younger than 60s if it only " +
				"removed fields)", "kubectl nstpl tree",
		},
		"stalled before an edit": {
			"namespacetemplates", []*ownObject{edited}, Warning,
			"1 not in force yet: budget (the controller has not reported on generation 3, and before it: 1 of 3 namespaces are " +
				"populated; limitrange/defaults: is forbidden)", "kubectl describe",
		},
		"ready just before an edit": {
			"policyspaces", []*ownObject{readyJustBefore}, OK, "1 object of nstpl's kinds, and none has a problem", "",
		},
		"ready before an edit, and its status is written": {
			"policyspaces", []*ownObject{reported}, Warning,
			"1 not in force yet: a (the controller has not reported on generation 3, which may be younger than 60s if it only " +
				"removed fields)", "kubectl nstpl tree",
		},
		"ready after an edit": {
			"policyspaces", []*ownObject{readyNow}, OK, "1 object of nstpl's kinds, and none has a problem", "",
		},
		"a stopped rollout": {
			"namespacetemplates", []*ownObject{own("budget", 0, stalled("RolloutStopped", "the rollout stopped")...)}, Failure,
			"budget (the rollout stopped)", "kubectl nstpl rollout status budget",
		},
		"a stopped rollout of a disabled template": {
			"namespacetemplates", []*ownObject{disabled}, Failure, "off (the template is disabled (annotation " +
				"policy/namespace-template-apply: disable))", "kubectl describe namespacetemplates off",
		},
		"a disabled template that is not accepted": {
			"namespacetemplates", []*ownObject{notAccepted}, Failure, "off (does not compile)", "kubectl describe",
		},
		"in a namespace": {
			"protectedattributes", []*ownObject{namespaced}, Failure, "team-a/env (no role)", "describe protectedattributes env -n team-a",
		},
		"late":          {"policyspaces", []*ownObject{own("a", time.Hour, notReady)}, Warning, "1 not in force yet: a (waits for its parent)", "kubectl nstpl tree"},
		"new":           {"policyspaces", []*ownObject{own("a", time.Second, notReady)}, OK, "none has a problem", ""},
		"not reported":  {"policyspaces", []*ownObject{own("a", time.Hour)}, Warning, "has not reported on it", "kubectl describe"},
		"just created":  {"policyspaces", []*ownObject{own("a", time.Second)}, OK, "none has a problem", ""},
		"a repository":  {"policyrepositories", []*ownObject{own("a", 0, stalled("Invalid", "violations")...)}, Failure, "a (violations)", "kubectl nstpl sync status"},
		"being deleted": {"namespacetemplates", []*ownObject{leaving}, Warning, "old (finalizers: policy.nstpl.dev/x)", "kubectl describe"},
		"over its limits": {
			"policyspaces", []*ownObject{own("a", 0, isReady, is(exceeded, metav1.ConditionTrue, "Exceeded", "pods: 5/3"))}, Warning,
			"1 over their limits: a (pods: 5/3)", "kubectl nstpl tree",
		},
		"an exemption in force": {
			"templateexemptions", []*ownObject{own("a", 0, isReady)}, OK, "1 object of nstpl's kinds, and none has a problem", "",
		},
		"an exemption from nothing": {
			"templateexemptions", []*ownObject{unmatched}, Warning,
			"templateexemptions: 1 without effect: team-a/old (template budget does not exist)",
			"describe templateexemptions old -n team-a",
		},
		"many": {"policyspaces", []*ownObject{
			own("d", 0, stalled("X", "")...), own("c", 0, stalled("X", "")...), own("b", 0, stalled("X", "")...),
			own("a", 0, stalled("X", "")...),
		}, Failure, "4 cannot be in force until a person acts: a, b, c and 1 more", "kubectl describe policyspaces a"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := healthy(t)
			for _, resource := range ownResources {
				a.own[resource.Resource] = fact[[]*ownObject]{}
			}
			for _, object := range test.objects {
				object.reduce()
				require.Empty(t, object.ManagedFields)
			}
			a.own[test.resource] = fact[[]*ownObject]{value: test.objects}
			requireResult(t, checkOwn(a), test.status, test.message, test.remedy)
		})
	}
}

func TestObjectsOfOwnKindsCannotBeListed(t *testing.T) {
	t.Parallel()
	a := healthy(t)
	a.own["policyspaces"] = fact[[]*ownObject]{err: errForbidden}
	a.own["policyrepositories"] = fact[[]*ownObject]{err: errForbidden}
	requireResult(t, checkOwn(a), Unknown, "you may not list policyrepositories, policyspaces", "administrator")
	a.own["policyspaces"] = fact[[]*ownObject]{err: errNotFound} // the definition is missing
	a.own["policyrepositories"] = fact[[]*ownObject]{err: errors.New("timeout")}
	requireResult(t, checkOwn(a), Unknown, "the request to list policyrepositories failed: timeout", "again")
}

func TestLongReasonsAreShortened(t *testing.T) {
	t.Parallel()
	object := own("a", 0, stalled("X", strings.Repeat("ä", maxReason+1))...)
	require.Equal(t, strings.Repeat("ä", maxReason)+"…", object.reason())
}
