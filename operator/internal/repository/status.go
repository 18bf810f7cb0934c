package repository

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// maxListed is how many items each list of a status has.
const maxListed = 20

// maxHistory is how many applied commits a status has.
const maxHistory = 5

// condition is what the Ready condition says.
type condition struct {
	kstatus         reporting.Kstatus
	reason, message string
}

func (c condition) set(status *v1alpha1.PolicyRepositoryStatus, generation int64) {
	status.ObservedGeneration = generation
	reporting.SetKstatus(&status.Conditions, generation, c.kstatus, c.reason, c.message)
}

// reportProblem reports why the newest commit is not followed, or that it is.
func reportProblem(status *v1alpha1.PolicyRepositoryStatus, known answer) {
	status.Commits.Fetched = known.fetched
	status.Violations, status.ViolationCount, status.PendingRollback = nil, 0, nil
	if known.problem != nil {
		status.PendingRollback = known.problem.rollback
		status.Violations = slices.Clone(known.problem.violations)
		status.ViolationCount = int32(known.problem.violationCount) //nolint:gosec // limited by the size of a tree
	}
	if known.tree != nil {
		status.Commits.Vetted = known.tree.commit
	}
}

// reportOutcome reports the result of carrying out a plan.
func reportOutcome(status *v1alpha1.PolicyRepositoryStatus, tree *vetted, o outcome, now time.Time) {
	status.Tree, status.Path = tree.root, tree.path
	status.Failures, status.PendingDeletions, status.Contested = nil, nil, nil
	for _, object := range first(o.contested) {
		status.Contested = append(status.Contested,
			v1alpha1.RepositoryFailure{Object: object.ID.String(), Message: object.why})
	}
	for _, conflict := range o.Conflicts {
		status.Failures = append(status.Failures,
			v1alpha1.RepositoryFailure{Object: conflict.ID.String(), Message: conflict.Reason})
	}
	for _, failed := range o.failures {
		status.Failures = append(status.Failures,
			v1alpha1.RepositoryFailure{Object: failed.ID.String(), Message: failed.err.Error()})
	}
	status.Failures = first(status.Failures)
	status.UnmanagedNamespaces = first(o.Unmanaged)
	if len(o.Waiting) > 0 {
		status.PendingDeletions = &v1alpha1.PendingDeletions{
			Commit: tree.commit, Namespaces: first(o.Waiting), Total: int32(len(o.Waiting)), //nolint:gosec // namespaces
			Digest: o.Deletions.Digest(),
		}
	}
	if !o.isComplete() {
		return
	}
	status.Namespaces = int32(tree.namespaces - len(o.Unmanaged)) //nolint:gosec // namespaces
	if status.Commits.Applied != tree.commit {
		status.Commits.Applied = tree.commit
		status.History = slices.Insert(status.History, 0, v1alpha1.AppliedCommit{
			Commit: tree.commit, Author: tree.author, Subject: tree.subject, Time: metav1.NewTime(now),
		})
		status.History = status.History[:min(len(status.History), maxHistory)]
	}
}

// shorten cuts the texts of a status that come from a commit, whose names and values may be as long as files: the API
// server stores no status of more than a megabyte.
func shorten(status *v1alpha1.PolicyRepositoryStatus) {
	for i := range status.Violations {
		violation := &status.Violations[i]
		violation.Path, violation.Message = reporting.Shorten(violation.Path), reporting.Shorten(violation.Message)
	}
	for _, failures := range [][]v1alpha1.RepositoryFailure{status.Failures, status.Contested} {
		for i := range failures {
			failures[i].Object = reporting.Shorten(failures[i].Object)
			failures[i].Message = reporting.Shorten(failures[i].Message)
		}
	}
}

// describe describes a commit or artifact that was applied.
func describe(applied v1alpha1.AppliedCommit) string {
	text := named(applied.Commit)
	if applied.Author != "" {
		text += " by " + applied.Author
	}
	return text + ": " + applied.Subject
}

func first[T any](all []T) []T { return all[:min(len(all), maxListed)] }

// named returns the name of the commit of the tree, with the path of the tree if spec.path is another one.
func (a answer) named() string {
	if a.tree.path == a.path {
		return named(a.tree.commit)
	}
	return fmt.Sprintf("the tree at the path %s of %s", a.tree.path, named(a.tree.commit))
}

// inForce says which commit is in force while a newer one is not.
func inForce(known answer) string {
	switch {
	case known.tree != nil:
		return known.named() + " stays in force"
	case known.inForce == nil:
		return "the commit in force is unknown"
	case known.inForce.commit != "":
		return named(known.inForce.commit) + " stays in force"
	}
	return "no commit is in force yet"
}

// conditionOf returns what the Ready condition says. o is nil if no tree is known.
func conditionOf(known answer, o *outcome) condition {
	switch {
	case known.problem != nil && known.problem.passes && (o == nil || o.isComplete()):
		return condition{reporting.InProgress, known.problem.reason, known.problem.message + "; " + inForce(known)}
	case known.problem != nil && (o == nil || o.isComplete()):
		return condition{reporting.Failed, known.problem.reason, known.problem.message + "; " + inForce(known)}
	case known.tree == nil:
		return condition{reporting.InProgress, v1alpha1.RepositoryProgressing, "the source is being fetched"}
	case o.hasFailed() && o.passes():
		return condition{reporting.InProgress, v1alpha1.RepositoryProgressing, failureMessage(known, *o)}
	case o.hasFailed():
		return condition{reporting.Failed, v1alpha1.RepositoryObjectsFailed, failureMessage(known, *o)}
	case o.remaining > 0:
		return condition{reporting.InProgress, v1alpha1.RepositoryProgressing,
			fmt.Sprintf("%s is being applied: %s left", known.named(), reporting.Count(o.remaining, "object"))}
	case len(o.Waiting) > 0:
		return condition{reporting.Failed, v1alpha1.RepositoryDeletionsPending, fmt.Sprintf(
			"%s is in force, but would delete %s: see them with kubectl nstpl sync status, and confirm "+
				"with kubectl nstpl sync confirm", named(known.tree.commit), reporting.Count(len(o.Waiting), "namespace"))}
	case len(o.contested) > 0:
		message := fmt.Sprintf("%s is applied, but %s", named(known.tree.commit), o.contested[0])
		if more := len(o.contested) - 1; more > 0 {
			message += fmt.Sprintf(" (and %d more)", more)
		}
		return condition{reporting.Failed, v1alpha1.RepositoryContested, message}
	}
	message := named(known.tree.commit) + " is in force"
	if n := len(o.Unmanaged); n > 0 {
		message += fmt.Sprintf("; not managed: %s that the tree declares and that existed before, the first is %s: "+
			"set existingNamespaces to Adopt, or annotate them with %s=true", reporting.Count(n, "namespace"), o.Unmanaged[0],
			v1alpha1.AdoptAnnotation)
	}
	if len(o.TemplateValues) > 0 {
		value := o.TemplateValues[0]
		names := map[string]bool{}
		for _, value := range o.TemplateValues {
			names[value.Namespace] = true
		}
		message += fmt.Sprintf("; in %s, templates set labels or annotations that the tree declares differently, the first is "+
			"the %s of namespace %s, by template %s: remove it from the tree or from the template",
			reporting.Count(len(names), "namespace"), value.MetadataKey, value.Namespace, value.Template)
	}
	if n := len(o.Protected); n > 0 {
		message += fmt.Sprintf("; kept, because protected from deletion: %s that the tree no longer declares, the first is "+
			"%s: to have it deleted, a user with the verb unprotect on it must remove its annotation %s, after which the "+
			"commit may need a confirmation",
			reporting.Count(n, "namespace"), o.Protected[0], v1alpha1.DeletionProtectionAnnotation)
	}
	if n := len(o.Undecided); n > 0 {
		message += fmt.Sprintf("; kept until the tree that the label %s names has taken them over, or was read and does "+
			"not declare them: %s that this tree no longer declares, the first is %s",
			v1alpha1.TreeLabel, reporting.Count(n, "object"), o.Undecided[0])
	}
	if n := len(o.Used); n > 0 {
		message += fmt.Sprintf("; kept, because namespaces are in or below it: %s that the tree no longer declares, the first is %s: "+
			"delete the namespaces, or move them to another policyspace", reporting.Count(n, "policyspace"), o.Used[0])
	}
	if n := len(o.Delayed); n > 0 {
		more := ""
		if n > 1 {
			more = fmt.Sprintf(" (and %d more)", n-1)
		}
		message += fmt.Sprintf("; template %s does not reach all namespaces yet, because its rollout is %s: see "+
			"kubectl nstpl rollout status %[1]s%[3]s",
			o.Delayed[0].Template, strings.ToLower(string(o.Delayed[0].State)), more)
	}
	return condition{reporting.Current, v1alpha1.RepositorySynced, message}
}

// failureMessage returns one of the failures, which is not one that passes if there is another. A problem that no list
// of the status has comes before it.
func failureMessage(known answer, o outcome) string {
	var text string
	if len(o.failures) > 0 {
		text = fmt.Sprintf("%s: %s", o.failures[0].ID, o.failures[0].err)
	} else {
		shown := max(0, slices.IndexFunc(o.Conflicts, func(c inventory.Conflict) bool { return !c.Passes }))
		text = fmt.Sprintf("%s: %s", o.Conflicts[shown].ID, o.Conflicts[shown].Reason)
	}
	if total := len(o.Conflicts) + len(o.failures); total > 1 {
		text += fmt.Sprintf(" (and %d more)", total-1)
	}
	if p := known.problem; p != nil && p.violationCount == 0 && p.rollback == nil {
		return p.message + "; besides, " + text
	}
	return text
}
