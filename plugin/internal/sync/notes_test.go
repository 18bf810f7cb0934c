package sync

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestNotes(t *testing.T) {
	for name, test := range map[string]struct {
		context string
		change  func(*v1alpha1.PolicyRepository)
		want    string
	}{
		"in force": {change: func(*v1alpha1.PolicyRepository) {}},
		"violations": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.Commits.Vetted, r.Status.Commits.Applied = oldCommit, oldCommit
				r.Status.Conditions[0].Status, r.Status.Conditions[0].Reason = "False", "Violations"
				r.Status.ViolationCount = 4
				r.Status.Violations = []v1alpha1.RepositoryViolation{
					{Path: "foo-corp/a.yaml", Line: 3, Message: "is its own ancestor"},
					{Path: "foo-corp/default", Message: "is reserved"},
				}
			},
			want: `
foo-corp: commit 1b1b1b1 is not applied, since it has 4 violations, and commit 0a0a0a0 stays in force:
  foo-corp/a.yaml:3: is its own ancestor
  foo-corp/default: is reserved
  and 2 more
`,
		},
		"violations at a changed path": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Spec.Path, r.Status.Path = "prod/foo-corp", "test/foo-corp"
				r.Status.Commits.Vetted, r.Status.Commits.Applied = oldCommit, oldCommit
				r.Status.Violations = []v1alpha1.RepositoryViolation{{Path: "a", Message: "b"}}
			},
			want: `
foo-corp: commit 1b1b1b1 is not applied, since it has 1 violation, and commit 0a0a0a0 stays in force:
  a: b
foo-corp: the objects in the cluster are those of the path test/foo-corp, since no commit is applied from spec.path prod/foo-corp yet
`,
		},
		"violations while the commit before is not applied completely": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.Commits.Fetched, r.Status.Commits.Applied = "2c2c2c2c", oldCommit
				r.Status.Violations = []v1alpha1.RepositoryViolation{{Path: "a", Message: "b"}}
			},
			want: `
foo-corp: commit 2c2c2c2 is not applied, since it has 1 violation, and commit 0a0a0a0 was the last one to be applied completely:
  a: b
`,
		},
		// Such as one that replaced a vetted one while the tree was that of another PolicyRepository.
		"violations, and the vetted commit was never in force": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.Commits.Fetched, r.Status.Commits.Applied = "2c2c2c2c", ""
				r.Status.Violations = []v1alpha1.RepositoryViolation{{Path: "a", Message: "b"}}
			},
			want: `
foo-corp: commit 2c2c2c2 is not applied, since it has 1 violation, and no commit was applied completely:
  a: b
`,
		},
		"violations of a commit that was applied before the one that is being applied": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.Commits.Fetched, r.Status.Commits.Applied = oldCommit, oldCommit
				r.Status.Violations = []v1alpha1.RepositoryViolation{{Path: "a", Message: "b"}}
			},
			want: `
foo-corp: commit 0a0a0a0 is not applied again, since it has 1 violation, and it was the last one to be applied completely:
  a: b
`,
		},
		"violations of the commit in force at a changed path": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Spec.Path, r.Status.Path = "prod/foo-corp", "test/foo-corp"
				r.Status.Violations = []v1alpha1.RepositoryViolation{{Path: "a", Message: "b"}}
			},
			want: `
foo-corp: commit 1b1b1b1 is not applied from spec.path, since it has 1 violation there, and its tree at the path test/foo-corp stays in force:
  a: b
foo-corp: the objects in the cluster are those of the path test/foo-corp, since no commit is applied from spec.path prod/foo-corp yet
`,
		},
		"violations of the commit in force, by later rules": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.Violations = []v1alpha1.RepositoryViolation{{Path: "a", Message: "b"}}
			},
			want: `
foo-corp: commit 1b1b1b1 is in force, but has 1 violation, and its objects are not repaired:
  a: b
`,
		},
		"violations in the first commit": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.Commits.Vetted, r.Status.Commits.Applied = "", ""
				r.Status.Violations = []v1alpha1.RepositoryViolation{{Path: "a", Message: "b"}}
			},
			want: `
foo-corp: commit 1b1b1b1 is not applied, since it has 1 violation, and no commit was applied completely:
  a: b
`,
		},
		"pending deletions": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.PendingDeletions = &v1alpha1.PendingDeletions{
					Commit: newCommit, Namespaces: []string{"team-a", "team-b"}, Total: 5,
				}
			},
			want: `
foo-corp: commit 1b1b1b1 no longer declares 5 namespaces. Confirm the commit to delete, with everything in them:
  team-a
  team-b
  and 3 more
  To confirm: kubectl nstpl sync confirm foo-corp 1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b
`,
		},
		"a rollback": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.Conditions[0].Status, r.Status.Conditions[0].Reason = "False", "RollbackPending"
				r.Status.PendingRollback = &v1alpha1.PendingRollback{
					Commit: newCommit, Committed: metav1.Unix(1, 0), InForce: oldCommit, InForceCommitted: metav1.Unix(2, 0),
				}
			},
			want: `
foo-corp: commit 1b1b1b1 of 1970-01-01 00:00:01Z is older than commit 0a0a0a0 of 1970-01-01 00:00:02Z, which is in force. Confirm it to have it applied
  To confirm: kubectl nstpl sync confirm foo-corp 1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b
`,
		},
		"a confirmed rollback": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.Conditions[0].Status, r.Status.Conditions[0].Reason = "False", "RollbackPending"
				r.Annotations = map[string]string{v1alpha1.ConfirmedRollbackAnnotation: newCommit}
				r.Status.PendingRollback = &v1alpha1.PendingRollback{
					Commit: newCommit, Committed: metav1.Unix(1, 0), InForce: oldCommit, InForceCommitted: metav1.Unix(2, 0),
				}
			},
			want: `
foo-corp: commit 1b1b1b1 of 1970-01-01 00:00:01Z is older than commit 0a0a0a0 of 1970-01-01 00:00:02Z, which is in force. It is confirmed, and nstpl-sync has not applied it yet
`,
		},
		"contested objects": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.Conditions[0].Status, r.Status.Conditions[0].Reason = "False", "Contested"
				r.Status.Contested = []v1alpha1.RepositoryFailure{
					{Object: "namespace/a", Message: "b changes it again and again"},
				}
			},
			want: `
foo-corp: not as the tree declares: 1 object:
  namespace/a: b changes it again and again
`,
		},
		"pending deletions of an artifact": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.PendingDeletions = &v1alpha1.PendingDeletions{
					Commit: newDigest, Namespaces: []string{"team-a"}, Total: 1,
				}
			},
			want: `
foo-corp: artifact sha256:2c2c2c2 no longer declares 1 namespace. Confirm the artifact to delete, with everything in them:
  team-a
  To confirm: kubectl nstpl sync confirm foo-corp sha256:2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c2c
`,
		},
		"pending deletions in a context": {
			context: "test",
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.PendingDeletions = &v1alpha1.PendingDeletions{
					Commit: newCommit, Namespaces: []string{"team-a"}, Total: 1,
				}
			},
			want: `
test/foo-corp: commit 1b1b1b1 no longer declares 1 namespace. Confirm the commit to delete, with everything in them:
  team-a
  To confirm: kubectl nstpl sync confirm foo-corp 1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b1b
`,
		},
		"confirmed deletions": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Annotations = map[string]string{v1alpha1.ConfirmedCommitAnnotation: newCommit}
				r.Status.PendingDeletions = &v1alpha1.PendingDeletions{
					Commit: newCommit, Namespaces: []string{"team-a"}, Total: 1,
				}
			},
			want: "foo-corp: commit 1b1b1b1 no longer declares 1 namespace. The deletion is confirmed, and nstpl-sync " +
				"has not finished it yet:\n  team-a",
		},
		// What is not a hash never becomes a part of a command line that users copy.
		"pending deletions of something else": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.PendingDeletions = &v1alpha1.PendingDeletions{
					Commit: "$(reboot)", Namespaces: []string{"team-a"}, Total: 1,
				}
			},
			want: `
foo-corp: commit $(reboo no longer declares 1 namespace. Confirm the commit to delete, with everything in them:
  team-a
`,
		},
		"failures": {
			change: func(r *v1alpha1.PolicyRepository) {
				ready := &r.Status.Conditions[0]
				ready.Status, ready.Reason = "False", "ObjectsFailed"
				ready.Message = "clusterrole/viewer: forbidden (and 1 more)"
				r.Status.Failures = []v1alpha1.RepositoryFailure{{Object: "clusterrole/viewer", Message: "forbidden"}}
			},
			want: `
foo-corp: 1 object could not be applied or deleted:
  clusterrole/viewer: forbidden
`,
		},
		"failures, and no answer": {
			change: func(r *v1alpha1.PolicyRepository) {
				ready := &r.Status.Conditions[0]
				ready.Status, ready.Reason = "False", "ObjectsFailed"
				ready.Message = "no answer; besides, clusterrole/viewer: forbidden"
				r.Status.Failures = []v1alpha1.RepositoryFailure{{Object: "clusterrole/viewer", Message: "forbidden"}}
			},
			want: `
foo-corp: 1 object could not be applied or deleted:
  clusterrole/viewer: forbidden
foo-corp: not ready: ObjectsFailed: no answer; besides, clusterrole/viewer: forbidden
`,
		},
		"pending deletions, and no answer": {
			change: func(r *v1alpha1.PolicyRepository) {
				ready := &r.Status.Conditions[0]
				ready.Status, ready.Reason, ready.Message = "False", "Unreachable", "no answer"
				r.Status.PendingDeletions = &v1alpha1.PendingDeletions{
					Commit: "1b1b1b1", Namespaces: []string{"team-a"}, Total: 1,
				}
			},
			want: `
foo-corp: commit 1b1b1b1 no longer declares 1 namespace. Confirm the commit to delete, with everything in them:
  team-a
foo-corp: not ready: Unreachable: no answer
`,
		},
		"unmanaged namespaces": {
			change: func(r *v1alpha1.PolicyRepository) { r.Status.UnmanagedNamespaces = []string{"team-a", "team-b"} },
			want: "foo-corp: the tree declares 2 namespaces that existed before and that it does not manage. To adopt, " +
				"set spec.existingNamespaces to Adopt, which deletes the undeclared Roles, RoleBindings and " +
				"ResourceQuotas in:\n  team-a\n  team-b",
		},
		"unreachable": {
			change: func(r *v1alpha1.PolicyRepository) {
				ready := &r.Status.Conditions[0]
				ready.Status, ready.Reason, ready.Message = "False", "FetchFailed", "no answer"
			},
			want: "\nfoo-corp: not ready: FetchFailed: no answer\n",
		},
		"under way": {
			change: func(r *v1alpha1.PolicyRepository) {
				r.Status.Commits.Applied = oldCommit
				ready := &r.Status.Conditions[0]
				ready.Status, ready.Reason, ready.Message = "False", "Applying", "12 of 20 objects"
			},
			want: "\nfoo-corp: commit 1b1b1b1 is fetched but not applied: Applying: 12 of 20 objects\n",
		},
		"suspended": {
			context: "test",
			change:  func(r *v1alpha1.PolicyRepository) { r.Spec.Suspend = true },
			want:    "\ntest/foo-corp: suspended: run 'kubectl nstpl sync resume foo-corp' to continue\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			repository := newRepository()
			test.change(repository)
			got := strings.Join(newView(test.context, repository).notes(), "\n")
			require.Equal(t, strings.Trim(test.want, "\n"), got)
		})
	}
}

// A full list in the status may not be the whole list.
func TestNotesOnFullLists(t *testing.T) {
	repository := newRepository()
	repository.Status.Failures = make([]v1alpha1.RepositoryFailure, maxListed)
	repository.Status.UnmanagedNamespaces = make([]string, maxListed)
	notes := strings.Join(newView("", repository).notes(), "\n")
	require.Contains(t, notes, "foo-corp: at least 20 objects could not be applied")
	require.Contains(t, notes, "the tree declares at least 20 namespaces that existed before")
}
