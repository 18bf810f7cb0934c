package why

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/rollout"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// explainOwn explains an object of one of nstpl's own kinds by its status. It reports false for other objects.
func explainOwn(a *answer, live *unstructured.Unstructured, now time.Time) bool {
	if live == nil || live.GroupVersionKind().Group != v1alpha1.GroupVersion.Group {
		return false
	}
	summary := ""
	switch live.GetKind() {
	case "NamespaceTemplate":
		summary = ownText(a, live, now, explainTemplate)
	case "PolicyRepository":
		summary = ownText(a, live, now, explainRepository)
	case "TemplateExemption":
		summary = ownText(a, live, now, explainOneExemption)
	}
	addConditions(a, live, now)
	a.Summary = a.where() + " " + cmp.Or(summary, readiness(live))
	if tree := live.GetLabels()[v1alpha1.TreeLabel]; tree != "" {
		a.add(labelDeclaredBy, "the files from which the tree "+tree+" is compiled")
		a.add(labelRemedy, "Change the files of the tree, and apply them again.")
	}
	return true
}

// ownText decodes an object and explains it. It returns an empty text if the object cannot be decoded.
func ownText[T any](
	a *answer, live *unstructured.Unstructured, now time.Time, explain func(*answer, *T, time.Time) string,
) string {
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, object); err != nil {
		a.add(labelState, fmt.Sprintf("it cannot be decoded: %v", err))
		return ""
	}
	return explain(a, object, now)
}

// conditionsOf returns the conditions of an object of nstpl.
func conditionsOf(live *unstructured.Unstructured) []metav1.Condition {
	var status struct {
		Status struct {
			Conditions []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	if runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, &status) != nil {
		return nil
	}
	return status.Status.Conditions
}

// readiness says whether an object is in force, according to its condition Ready.
func readiness(live *unstructured.Unstructured) string {
	ready := apimeta.FindStatusCondition(conditionsOf(live), v1alpha1.ConditionReady)
	switch {
	case ready == nil:
		return "has no condition Ready, so it is unknown whether it is in force"
	case ready.ObservedGeneration != 0 && ready.ObservedGeneration < live.GetGeneration():
		return "was changed, and its status does not describe the change yet"
	case ready.Status == metav1.ConditionTrue:
		return "is in force"
	}
	return "is not in force as it is stored"
}

// badConditions are the types of conditions that say that something is wrong when they are True.
var badConditions = []string{v1alpha1.ConditionStalled, v1alpha1.ConditionReconciling, v1alpha1.PolicySpaceExceeded}

// addConditions adds the conditions of an object, except for those that hold as they are meant to.
func addConditions(a *answer, live *unstructured.Unstructured, now time.Time) {
	for _, condition := range conditionsOf(live) {
		isBad := slices.Contains(badConditions, condition.Type)
		if isBad == (condition.Status == metav1.ConditionTrue) && condition.Message != "" {
			a.add(labelState, fmt.Sprintf("%s is %s (%s) for %s: %s",
				condition.Type, condition.Status, condition.Reason,
				duration.HumanDuration(now.Sub(condition.LastTransitionTime.Time)), condition.Message))
		}
	}
}

// explainTemplate says what a template selects, and how far it is in force.
func explainTemplate(a *answer, template *v1alpha1.NamespaceTemplate, _ time.Time) string {
	status, counts := template.Status, template.Status.Namespaces
	if selector, err := match.Selector(template.Spec.Namespaces); err == nil {
		text := "selects the namespaces with labels " + selector.String()
		if selector.Empty() {
			text = "selects every namespace"
		}
		if !isInForce(template) {
			text = "its stored spec " + text
		}
		if match.RequiresPermission(template) {
			text += ", of users with the verb " + v1alpha1.VerbUse + " on it"
		}
		a.add(labelState, text)
	}
	a.add(labelNow, fmt.Sprintf("%s selected: %d updated, %d populated, %d failed, %d drifted; %d opted out",
		output.Count(int(counts.Matched), "namespace"), counts.Updated, counts.Populated, counts.Failed, counts.Drifted,
		counts.OptedOut))
	a.add(labelState, populate.ReportedDelay(template))
	for _, failure := range status.Failures {
		where := output.WithMore(failure.Namespaces, int(failure.Count))
		a.add(labelState, strings.TrimPrefix(fmt.Sprintf("%s failed in %s: %s", failure.Object, where, failure.Message), " "))
	}
	if tree := template.Labels[v1alpha1.TreeLabel]; tree != "" {
		a.add(labelDeclaredBy, "the tree "+tree+" from which it is compiled")
	}
	accepted := apimeta.FindStatusCondition(status.Conditions, v1alpha1.TemplateAccepted)
	switch {
	case template.DeletionTimestamp != nil:
		return "is being deleted"
	case match.DisabledReason(template) != "":
		return "selects no namespaces: " + match.DisabledReason(template)
	case rollout.NotStored(template) != "":
		return "was changed: " + rollout.NotStored(template)
	case accepted == nil || status.ObservedGeneration < template.Generation:
		return "was changed, and the operator has not reported on the change yet"
	case accepted.Status != metav1.ConditionTrue:
		a.add(labelRemedy, "Correct the template: 'kubectl nstpl vet -f FILE' checks it. "+survey.WhileNotAccepted(status))
		return "is not accepted: " + accepted.Message
	case len(status.Revisions) == 0:
		return "is accepted, and its rollout has not begun"
	}
	newest := status.Revisions[0]
	a.add(labelRemedy, fmt.Sprintf("'kubectl nstpl rollout status %s' follows the rollout, and 'kubectl nstpl diff -A "+
		"--template %[1]s' shows the differences.", template.Name))
	if newest.State == v1alpha1.RolloutComplete && counts.Failed > 0 {
		return fmt.Sprintf("is accepted; revision %d is rolled out, but %d of %s failed", newest.Revision, counts.Failed,
			output.Count(int(counts.Matched), "namespace"))
	}
	return fmt.Sprintf("is accepted; the rollout of revision %d is %s", newest.Revision,
		strings.ToLower(string(newest.State)))
}

// isInForce reports whether the stored spec of a template, and no earlier revision, selects its namespaces.
func isInForce(template *v1alpha1.NamespaceTemplate) bool {
	status := template.Status
	return match.DisabledReason(template) == "" && status.ObservedGeneration == template.Generation &&
		apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.TemplateAccepted) &&
		len(status.Revisions) > 0 && status.Revisions[0].State == v1alpha1.RolloutComplete
}

// explainRepository says which commit is in force, and why the newest one is not.
func explainRepository(a *answer, repository *v1alpha1.PolicyRepository, now time.Time) string {
	status := repository.Status
	for _, violation := range status.Violations {
		a.add(labelState, output.Position(violation.Path, int(violation.Line))+": "+violation.Message)
	}
	for _, failure := range status.Failures {
		a.add(labelState, failure.Object+": "+failure.Message)
	}
	if status.PendingDeletions != nil {
		a.add(labelState, fmt.Sprintf("the deletion of %s waits for a person", output.Count(
			max(int(status.PendingDeletions.Total), len(status.PendingDeletions.Namespaces)), "namespace")))
	}
	if status.LastSyncTime != nil {
		a.add(labelNow, "last compared with the cluster and in force "+
			duration.HumanDuration(now.Sub(status.LastSyncTime.Time))+" ago")
	}
	a.add(labelRemedy, fmt.Sprintf("'kubectl nstpl sync status %s' says what to do.", repository.Name))
	switch commits := status.Commits; {
	case status.ObservedGeneration < repository.Generation:
		return "was changed, and nstpl-sync has not reported on the change yet"
	case repository.Spec.Suspend:
		return "is suspended"
	case commits.Applied == "" && commits.Fetched == "":
		return "has no commit yet"
	case commits.Applied == "":
		return output.Commit(commits.Fetched) + " is fetched, and none was applied completely"
	case commits.Applied != commits.Vetted: // which is in force in part, or not at all
		return fmt.Sprintf("has %s as the last one that was applied completely; %s is fetched",
			output.Commit(commits.Applied), output.Commit(commits.Fetched))
	case commits.Applied == commits.Fetched:
		return "has " + output.Commit(commits.Applied) + " in force"
	default:
		return fmt.Sprintf("has %s in force; %s is fetched and not applied", output.Commit(commits.Applied),
			output.Commit(commits.Fetched))
	}
}

// explainOneExemption says what is exempt, until when and why.
func explainOneExemption(a *answer, exemption *v1alpha1.TemplateExemption, now time.Time) string {
	what := "the whole template " + exemption.Spec.Template
	if len(exemption.Spec.Objects) > 0 {
		what = match.ObjectList(&exemption.Spec) + " of template " + exemption.Spec.Template
	}
	a.add(labelState, "its reason: "+exemption.Spec.Reason)
	a.add(labelRemedy, fmt.Sprintf("To end it, run 'kubectl delete templateexemption %s -n %s'.", exemption.Name,
		exemption.Namespace))
	end := exemption.Spec.Expires
	switch {
	case exemption.DeletionTimestamp != nil:
		return "is being deleted, and no longer in force"
	case end == nil:
		return "exempts the namespace from " + what + ", without an end"
	case end.After(now):
		return fmt.Sprintf("exempts the namespace from %s until %s", what, end.UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("expired at %s: until then, it exempted the namespace from %s", end.UTC().Format(time.RFC3339),
		what)
}
