package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/quota"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// templateRow returns a template with the counts of its status, and findings if it is not accepted or if its rollout
// does not go on.
func templateRow(t *v1alpha1.NamespaceTemplate) (Template, []Finding) {
	row := Template{
		Name: t.Name, Ready: string(metav1.ConditionUnknown), Namespaces: t.Status.Namespaces,
		Requires: match.RequiresPermission(t),
		Stalled:  apimeta.IsStatusConditionTrue(t.Status.Conditions, v1alpha1.ConditionStalled),
	}
	if ready := apimeta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionReady); ready != nil &&
		ready.ObservedGeneration == t.Generation {
		row.Ready, row.Reason, row.Message = string(ready.Status), ready.Reason, ready.Message
	}
	if disabled := match.DisabledReason(t); disabled != "" {
		row.Reason, row.Message = "Disabled", disabled
	}
	if len(t.Status.Revisions) > 0 {
		row.Revision, row.Rollout = t.Status.Revisions[0].Revision, string(t.Status.Revisions[0].State)
	}
	return row, templateFindings(t, row)
}

func templateFindings(t *v1alpha1.NamespaceTemplate, row Template) []Finding {
	var findings []Finding
	add := func(severity Severity, reason, message, remedy string) {
		findings = append(findings, Finding{
			Severity: severity, Template: t.Name, Reason: reason, Message: message, Remedy: remedy,
		})
	}
	isDisabled := match.DisabledReason(t) != ""
	accepted := apimeta.FindStatusCondition(t.Status.Conditions, v1alpha1.TemplateAccepted)
	if accepted != nil && accepted.Status == metav1.ConditionFalse {
		remedy := "Correct the template."
		if !isDisabled {
			remedy += " " + survey.WhileNotAccepted(t.Status)
		}
		add(Failure, "NotAccepted", accepted.Message, remedy)
	}
	if isDisabled { // the status keeps the state of the rollout from before
		return findings
	}
	counts := t.Status.Namespaces
	reached := fmt.Sprintf("revision %d has reached %d of %d namespaces", row.Revision, counts.Updated, counts.Matched)
	switch v1alpha1.RolloutState(row.Rollout) {
	case v1alpha1.RolloutStopped:
		remedy := fmt.Sprintf("Correct the cause and run 'kubectl nstpl rollout restart %s'.", t.Name)
		if row.Revision > 1 { // otherwise, there is no earlier revision
			remedy = fmt.Sprintf("Take the change back with 'kubectl nstpl rollout undo %s', or correct the cause and run "+
				"'kubectl nstpl rollout restart %[1]s'.", t.Name)
		}
		add(Failure, "RolloutStopped", fmt.Sprintf("the rollout stopped, because namespaces failed: %s", reached), remedy)
	case v1alpha1.RolloutPaused:
		add(Warning, "RolloutPaused", "the rollout is paused: "+reached,
			fmt.Sprintf("Run 'kubectl nstpl rollout resume %s' to continue.", t.Name))
	case v1alpha1.RolloutProgressing, v1alpha1.RolloutWaiting, v1alpha1.RolloutSuperseded, v1alpha1.RolloutComplete:
	}
	return findings
}

// policySpaces returns the policy spaces in the order of the tree, with the findings about them.
func policySpaces(spaces []*v1alpha1.PolicySpace) ([]PolicySpace, []Finding) {
	forest, all := hierarchy.NewForest(spaces), []PolicySpace{}
	var findings []Finding
	seen := map[string]bool{}
	var visit func(name string, depth int)
	visit = func(name string, depth int) {
		if seen[name] {
			return
		}
		seen[name] = true
		row, found := policySpace(forest.Get(name), depth)
		all, findings = append(all, row), append(findings, found...)
		for _, child := range forest.Children(name) {
			visit(child, depth+1)
		}
	}
	for _, name := range forest.Names() {
		if parent := forest.Get(name).Spec.Parent; parent == "" || forest.Get(parent) == nil {
			visit(name, 0)
		}
	}
	for _, name := range forest.Names() {
		visit(name, 0) // the members of a cycle, which have no root
	}
	return all, findings
}

func policySpace(space *v1alpha1.PolicySpace, depth int) (PolicySpace, []Finding) {
	row := PolicySpace{
		Name: space.Name, Parent: space.Spec.Parent, Depth: depth, Namespaces: int(space.Status.Namespaces),
	}
	hard := quota.Hard(space)
	for name, limit := range hard {
		usage := Usage{Resource: string(name), Limit: limit.String()}
		if used, isKnown := quota.Known(space, name); isKnown {
			usage.Used, usage.Percent = used.String(), new(output.Percent(used, limit))
		}
		row.Quota = append(row.Quota, usage)
	}
	slices.SortFunc(row.Quota, func(a, b Usage) int { return strings.Compare(a.Resource, b.Resource) })
	var findings []Finding
	add := func(severity Severity, condition *metav1.Condition, remedy string) {
		findings = append(findings, Finding{
			Severity: severity, Object: "policyspace/" + space.Name, Reason: condition.Reason,
			Message: condition.Message, Remedy: remedy, Since: output.UTC(condition.LastTransitionTime),
		})
	}
	conditions := space.Status.Conditions
	if stalled := apimeta.FindStatusCondition(conditions, v1alpha1.ConditionStalled); stalled != nil {
		row.Problem = stalled.Message
		add(Failure, stalled, "Correct the policy space.")
	}
	exceeded := apimeta.FindStatusCondition(conditions, v1alpha1.PolicySpaceExceeded)
	if exceeded != nil && exceeded.Status == metav1.ConditionTrue {
		row.Problem = cmp.Or(row.Problem, exceeded.Message)
		add(Warning, exceeded, "Raise the limit, or delete objects: new ones are denied until then.")
	}
	return row, findings
}

// repositoryFindings returns what keeps a PolicyRepository from being followed. What may pass by itself is a warning,
// once it has lasted for a while.
func repositoryFindings(repository *v1alpha1.PolicyRepository, now time.Time) []Finding {
	conditions := repository.Status.Conditions
	severity, condition := Failure, apimeta.FindStatusCondition(conditions, v1alpha1.ConditionStalled)
	if condition == nil {
		severity, condition = Warning, apimeta.FindStatusCondition(conditions, v1alpha1.ConditionReady)
	}
	if condition == nil {
		condition = &metav1.Condition{
			Reason: "NotReported", Message: "nstpl-sync has not reported on it",
			LastTransitionTime: repository.CreationTimestamp,
		}
	}
	if severity == Warning && (condition.Status == metav1.ConditionTrue ||
		now.Sub(condition.LastTransitionTime.Time) < survey.Patience) {
		return nil
	}
	return []Finding{{
		Severity: severity, Object: "policyrepository/" + repository.Name, Reason: condition.Reason,
		Message: condition.Message, Since: output.UTC(condition.LastTransitionTime),
		Remedy: fmt.Sprintf("Run 'kubectl nstpl sync status %s'.", repository.Name),
	}}
}

// pendingDeletions returns what waits to be deleted: namespaces that are gone from a tree, and templates and namespaces
// that are being deleted.
func pendingDeletions(x contents) []PendingDeletion {
	all := []PendingDeletion{}
	for i := range x.repositories {
		repository := &x.repositories[i]
		if pending := repository.Status.PendingDeletions; pending != nil {
			all = append(all, PendingDeletion{
				Object: "policyrepository/" + repository.Name, Names: pending.Namespaces, Total: int(pending.Total),
				Why: whyNamespacesWait(repository),
			})
		}
	}
	for _, t := range x.templates {
		if t.DeletionTimestamp != nil {
			all = append(all, PendingDeletion{
				Object: "namespacetemplate/" + t.Name, Since: output.UTC(*t.DeletionTimestamp),
				Why: whyTemplateWaits(t),
			})
		}
	}
	for _, ns := range x.namespaces {
		if ns.DeletionTimestamp != nil {
			all = append(all, PendingDeletion{
				Object: "namespace/" + ns.Name, Since: output.UTC(*ns.DeletionTimestamp), Why: "is deleted when its objects are deleted",
			})
		}
	}
	return all
}

// whyNamespacesWait returns what the deletion of namespaces that are no longer in the tree of a repository waits for.
func whyNamespacesWait(repository *v1alpha1.PolicyRepository) string {
	commit := repository.Status.PendingDeletions.Commit
	if commit == repository.Annotations[v1alpha1.ConfirmedCommitAnnotation] {
		return "namespaces are no longer in the tree: their deletion is confirmed, and nstpl-sync has not finished it " +
			"yet"
	}
	return fmt.Sprintf("namespaces are no longer in the tree: 'kubectl nstpl sync confirm %s %s' deletes them",
		repository.Name, commit)
}

// whyTemplateWaits returns what the deletion of a template waits for. Only a template with deletionPolicy Delete waits
// for its objects. Each other finalizer is removed by the client that added it.
func whyTemplateWaits(t *v1alpha1.NamespaceTemplate) string {
	isPruning := t.Spec.DeletionPolicy == v1alpha1.DeletionDelete
	held := slices.DeleteFunc(slices.Clone(t.Finalizers), func(finalizer string) bool {
		return isPruning && finalizer == v1alpha1.DeletionFinalizer
	})
	isPruning = len(held) < len(t.Finalizers)
	switch {
	case isPruning && len(held) == 0:
		return "is deleted when its objects in all namespaces are deleted"
	case isPruning:
		return "is deleted when its objects in all namespaces are deleted and its other finalizers are removed: " +
			strings.Join(held, ", ")
	}
	return "is deleted when its finalizers are removed: " + strings.Join(held, ", ")
}
