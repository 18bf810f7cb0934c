package sync

import (
	"fmt"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// maxListed is the number of items that a list in the status holds at most.
const maxListed = 20

// notes returns lines that say why the newest commit is not in force, and what a person has to decide.
func (v view) notes() []string {
	var lines []string
	for _, part := range [][]string{
		v.violations(), v.pendingRollback(), v.pendingDeletions(),
		v.objects(v.Status.Failures, "%s could not be applied or deleted"),
		v.objects(v.Status.Contested, "not as the tree declares: %s"),
	} {
		lines = append(lines, part...)
	}
	if len(lines) == 0 || !v.isListed() {
		lines = append(lines, v.delay()...)
	}
	lines = append(lines, v.pathBefore()...)
	lines = append(lines, v.unmanaged()...)
	if v.Suspended {
		lines = append(lines, fmt.Sprintf("%s: suspended: run 'kubectl nstpl sync resume %s' to continue", v.title(), v.Name))
	}
	return lines
}

// isListed reports whether the lists in the status have what the reason of the condition is about. They may be about
// the commit in force, while a newer one cannot be read.
func (v view) isListed() bool {
	switch v.Reason {
	case v1alpha1.RepositoryObjectsFailed:
		return slices.ContainsFunc(v.Status.Failures, func(failed v1alpha1.RepositoryFailure) bool {
			return strings.HasPrefix(v.Message, failed.Object+": ")
		})
	case v1alpha1.RepositoryViolations, v1alpha1.RepositoryRollbackPending, v1alpha1.RepositoryDeletionsPending,
		v1alpha1.RepositoryContested, v1alpha1.RepositoryProgressing, v1alpha1.RepositorySuspended:
		return true
	}
	return v.isReady()
}

// violations returns which rules the newest commit breaks.
func (v view) violations() []string {
	count := max(int(v.Status.ViolationCount), len(v.Status.Violations))
	if count == 0 {
		return nil
	}
	line, inForce := "%s: %s is not applied, since it has %s, and %s:", "no commit was applied completely"
	fetched, applied := v.Status.Commits.Fetched, v.Status.Commits.Applied
	switch {
	case applied == "":
	case applied != v.Status.Commits.Vetted && applied == fetched:
		line, inForce = "%s: %s is not applied again, since it has %s, and %s:", "it was the last one to be applied completely"
	case applied != v.Status.Commits.Vetted:
		// The vetted one may be in force in part, or not at all, such as while its tree was another repository's.
		inForce = output.Commit(short(applied)) + " was the last one to be applied completely"
	case applied == fetched && v.isPathBefore():
		line, inForce = "%s: %s is not applied from spec.path, since it has %s there, and %s:", "its tree at the path "+
			v.Status.Path+" stays in force"
	case applied == fetched:
		line, inForce = "%s: %s is in force, but has %s, and %s:", "its objects are not repaired"
	default:
		inForce = output.Commit(short(applied)) + " stays in force"
	}
	lines := []string{
		fmt.Sprintf(line, v.title(), output.Commit(short(fetched)), output.Count(count, "violation"), inForce),
	}
	for _, violation := range v.Status.Violations {
		lines = append(lines, fmt.Sprintf("  %s: %s", output.Position(violation.Path, int(violation.Line)),
			violation.Message))
	}
	return append(lines, more(count-len(v.Status.Violations))...)
}

// pendingDeletions returns which namespaces remain until someone confirms the commit or artifact, with the command to
// confirm it.
func (v view) pendingDeletions() []string {
	pending := v.Status.PendingDeletions
	if pending == nil {
		return nil
	}
	total := max(int(pending.Total), len(pending.Namespaces))
	what := fmt.Sprintf("%s: %s no longer declares %s", v.title(), output.Commit(short(pending.Commit)),
		output.Count(total, "namespace"))
	if v.confirmed == pending.Commit {
		what += ". The deletion is confirmed, and nstpl-sync has not finished it yet:"
	} else {
		kind, _, _ := strings.Cut(output.Commit(pending.Commit), " ")
		what += fmt.Sprintf(". Confirm the %s to delete, with everything in them:", kind)
	}
	lines := append([]string{what}, listed(pending.Namespaces, total)...)
	// The hash is complete, so that no other commit with the same first characters is confirmed.
	if v.confirmed != pending.Commit && hashes.MatchString(pending.Commit) {
		lines = append(lines, v.confirmCommand(pending.Commit))
	}
	return lines
}

// pendingRollback returns which commit waits for a confirmation because it is older than the one in force.
func (v view) pendingRollback() []string {
	rollback := v.Status.PendingRollback
	if rollback == nil {
		return nil
	}
	line := fmt.Sprintf("%s: %s. ", v.title(), isOlder(rollback))
	if v.confirmedRollback == rollback.Commit {
		return []string{line + "It is confirmed, and nstpl-sync has not applied it yet"}
	}
	line += "Confirm it to have it applied"
	if !hashes.MatchString(rollback.Commit) {
		return []string{line}
	}
	return []string{line, v.confirmCommand(rollback.Commit)}
}

// objects returns a line with the number of objects in its text, and a line for each object.
func (v view) objects(objects []v1alpha1.RepositoryFailure, text string) []string {
	if len(objects) == 0 {
		return nil
	}
	count := output.Count(len(objects), "object")
	if len(objects) == maxListed {
		count = "at least " + count
	}
	lines := []string{fmt.Sprintf("%s: "+text+":", v.title(), count)}
	for _, object := range objects {
		lines = append(lines, fmt.Sprintf("  %s: %s", object.Object, object.Message))
	}
	return lines
}

// delay returns why the newest commit is not in force if the status lists no object or violation that explains it.
func (v view) delay() []string {
	commits := v.Status.Commits
	text := v.title() + ": "
	switch isApplied := commits.Fetched == commits.Applied; {
	case isApplied && v.isReady():
		return nil
	case isApplied:
		text += "not ready"
	default:
		text += output.Commit(short(commits.Fetched)) + " is fetched but not applied"
	}
	if !v.isReady() {
		text += ": " + v.Reason + ": " + v.Message
	}
	return []string{text}
}

// pathBefore returns which path the objects in the cluster are from, if spec.path is another one.
func (v view) pathBefore() []string {
	if !v.isPathBefore() {
		return nil
	}
	return []string{fmt.Sprintf("%s: the objects in the cluster are those of the path %s, since no commit is applied "+
		"from spec.path %s yet", v.title(), v.Status.Path, v.path)}
}

func (v view) isPathBefore() bool {
	return v.Status.Path != "" && v.path != "" && v.Status.Path != v.path
}

// unmanaged returns which declared namespaces existed before, and how they become a part of the tree.
func (v view) unmanaged() []string {
	names := v.Status.UnmanagedNamespaces
	if len(names) == 0 {
		return nil
	}
	count := output.Count(len(names), "namespace")
	if len(names) == maxListed {
		count = "at least " + count
	}
	lines := []string{fmt.Sprintf("%s: the tree declares %s that existed before and that it does not manage. "+
		"To adopt, set spec.existingNamespaces to Adopt, which deletes the undeclared Roles, RoleBindings and "+
		"ResourceQuotas in:", v.title(), count)}
	return append(lines, listed(names, len(names))...)
}

// confirmCommand returns a line with the command that confirms a commit.
func (v view) confirmCommand(commit string) string {
	return fmt.Sprintf("  To confirm: kubectl nstpl sync confirm %s %s", v.Name, commit)
}

// listed returns a line for each name, and one for the number of names that are not listed.
func listed(names []string, total int) []string {
	var lines []string
	for _, name := range names {
		lines = append(lines, "  "+name)
	}
	return append(lines, more(total-len(names))...)
}

func more(count int) []string {
	if count <= 0 {
		return nil
	}
	return []string{fmt.Sprintf("  and %d more", count)}
}
