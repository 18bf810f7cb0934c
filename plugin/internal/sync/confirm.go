package sync

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type confirm struct {
	cli.Session
	contexts cli.Contexts
	written  cli.Written
	commit   string
}

// confirmation is the confirmation of a commit in one cluster.
type confirmation struct {
	in     cli.Source
	commit string
	// shown is what was printed, or nil before that.
	shown *decision
}

// decision is what waits for the confirmation of a commit: deletions or a rollback.
type decision struct {
	commit    string
	deletions *v1alpha1.PendingDeletions
	rollback  *v1alpha1.PendingRollback
}

// annotation returns the key of the annotation that confirms it.
func (d decision) annotation() string {
	if d.rollback != nil {
		return v1alpha1.ConfirmedRollbackAnnotation
	}
	return v1alpha1.ConfirmedCommitAnnotation
}

func newConfirm(s cli.Session) *cobra.Command {
	o := &confirm{Session: s}
	cmd := &cobra.Command{
		Use:   "confirm NAME COMMIT [--dry-run=none|client|server] [-o FORMAT] [--contexts=CONTEXT,...]",
		Short: "Confirm that a commit deletes namespaces, or undoes a newer one",
		Long: templates.LongDesc(`
			Confirm that nstpl-sync deletes the namespaces that a commit no longer declares, with everything in them.
			A commit needs this confirmation if it deletes more namespaces than spec.deletionLimit allows, or the last
			namespace of the tree without creating another, or if an earlier one needed it. See "kubectl nstpl sync
			status" for these namespaces.

			With spec.git.verify, a commit that is older than the one in force needs a confirmation as well, before
			anything of it is applied. That does not confirm its deletions.

			COMMIT is the hash of the commit, or at least its first 7 characters. For an artifact of Flux that is not
			one commit as it is, COMMIT is the digest of the artifact, such as sha256:1a2b3c4. Another commit or
			artifact that is fetched later needs a confirmation of its own.

			With --contexts, the command prints the namespaces of several clusters, and then confirms the commit in all
			of them. If the commit does not wait for a confirmation in one of them, or one cannot be read, nothing is
			confirmed.`),
		Example: templates.Examples(`
			# Show which namespaces would be deleted
			kubectl nstpl sync confirm foo-corp 1a2b3c4d5e6f --dry-run=server

			# Delete the namespaces that the commit no longer declares
			kubectl nstpl sync confirm foo-corp 1a2b3c4d5e6f

			# Delete them in two clusters
			kubectl nstpl sync confirm foo-corp 1a2b3c4d5e6f --contexts=test,production`),
		Args: nameAndCommit,
		// COMMIT is not completed, so that users confirm only a commit that they have read about.
		ValidArgsFunction: s.CompleteObject(v1alpha1.PolicyRepositories),
		RunE: oneRepository(func(cmd *cobra.Command, name string) error {
			commit := cmd.Flags().Arg(1)
			o.commit = strings.ToLower(commit)
			if !abbreviation.MatchString(o.commit) {
				return cli.UsageError(cmd, fmt.Errorf("%q is not a commit: "+
					"write its hash, or at least the first %d characters of it", commit, output.ShortHash))
			}
			if err := o.contexts.CheckOutput(cmd, &o.written); err != nil {
				return err
			}
			return o.run(cmd.Context(), name)
		}),
	}
	o.written.AddFlags(cmd)
	o.contexts.AddTo(cmd, s)
	return cmd
}

func nameAndCommit(cmd *cobra.Command, args []string) error {
	if len(args) != 2 {
		return cli.UsageError(cmd,
			fmt.Errorf("NAME and COMMIT are required, got %s", output.Count(len(args), "argument")))
	}
	return nil
}

func (o *confirm) run(ctx context.Context, name string) error {
	read, failed := cli.Split(o.Session, cli.Ask(ctx, o.Session, o.contexts,
		func(ctx context.Context, in cli.Source) (*unstructured.Unstructured, error) {
			return in.Cluster.PolicyRepositoryObject(ctx, name)
		}))
	confirmations, failures := o.showAll(read)
	_, notPending := cli.Split(o.Session, failures)
	if failed = cmp.Or(failed, notPending); failed != nil {
		if len(o.contexts) > 0 {
			o.Note("nothing is confirmed: name only contexts in which %s waits for a confirmation",
				output.Commit(o.commit))
		}
		return failed
	}
	confirmed := read
	if o.written.IsLocal() {
		for i, c := range confirmations {
			annotate(read[i].Value, c.shown)
		}
	} else {
		confirmed, failed = cli.Split(o.Session, o.writeAll(ctx, name, confirmations))
	}
	if err := cli.PrintWritten(o.Session, &o.written, "confirmed", confirmed); err != nil {
		return err
	}
	return failed
}

// showAll prints, for each cluster, the namespaces that will be deleted. It returns a confirmation for each, and those
// clusters in which the commit does not wait for one.
func (o *confirm) showAll(
	read []cli.Reply[*unstructured.Unstructured],
) (confirmations []*confirmation, failures []cli.Reply[*unstructured.Unstructured]) {
	for _, r := range read {
		c := &confirmation{in: r.Source, commit: o.commit}
		if _, r.Err = c.patch(r.Value); r.Err != nil {
			failures = append(failures, r)
			continue
		}
		confirmations = append(confirmations, c)
		// The same first characters may be those of different commits.
		o.commit = c.shown.commit
	}
	return confirmations, failures
}

// writeAll confirms the commit in all clusters.
func (o *confirm) writeAll(
	ctx context.Context, name string, confirmations []*confirmation,
) []cli.Reply[*unstructured.Unstructured] {
	options := metav1.PatchOptions{FieldManager: cli.FieldManager, DryRun: o.written.DryRun()}
	return cluster.Each(confirmations, func(c *confirmation) cli.Reply[*unstructured.Unstructured] {
		r := cli.Reply[*unstructured.Unstructured]{Source: c.in}
		r.Value, r.Err = c.in.Cluster.Edit(ctx, v1alpha1.PolicyRepositories, name, options, c.patch)
		return r
	})
}

// patch prints the namespaces that will be deleted, and returns the fields that confirm it. If the repository changes
// before the API server has stored the fields, patch is called again, and fails if the namespaces are others.
func (o *confirmation) patch(object *unstructured.Unstructured) (map[string]any, error) {
	repository, err := cluster.Decode[v1alpha1.PolicyRepository](object)
	if err != nil {
		return nil, err
	}
	waiting, err := decisionOf(repository, o.commit)
	if err != nil {
		return nil, err
	}
	if o.shown == nil {
		o.shown = waiting
		o.show(repository)
	} else if !reflect.DeepEqual(o.shown, waiting) {
		return nil, fmt.Errorf("the pending deletions of %s changed at the same time, and nothing is confirmed: "+
			"run 'kubectl nstpl sync status %s', and then try again", quoted(repository.Name), repository.Name)
	}
	return map[string]any{
		"metadata": map[string]any{"annotations": map[string]any{waiting.annotation(): waiting.commit}},
	}, nil
}

// decisionOf returns what a commit, whose hash may be abbreviated, waits for.
func decisionOf(repository *v1alpha1.PolicyRepository, commit string) (*decision, error) {
	rollback := repository.Status.PendingRollback
	isCurrent := repository.Status.ObservedGeneration >= repository.Generation
	if isCurrent && rollback != nil && hashes.MatchString(rollback.Commit) &&
		strings.HasPrefix(rollback.Commit, commit) {
		if repository.Annotations[v1alpha1.ConfirmedRollbackAnnotation] == rollback.Commit {
			return nil, fmt.Errorf("%s of %s is already confirmed", output.Commit(rollback.Commit),
				quoted(repository.Name))
		}
		return &decision{commit: rollback.Commit, rollback: rollback}, nil
	}
	deletions, err := pendingDeletions(repository, commit)
	if err != nil {
		return nil, err
	}
	return &decision{commit: deletions.Commit, deletions: deletions}, nil
}

// pendingDeletions returns the deletions that a commit, whose hash may be abbreviated, waits for.
func pendingDeletions(repository *v1alpha1.PolicyRepository, commit string) (*v1alpha1.PendingDeletions, error) {
	pending := repository.Status.PendingDeletions
	advice := fmt.Sprintf("run 'kubectl nstpl sync status %s'", repository.Name)
	switch {
	case repository.Status.ObservedGeneration < repository.Generation:
		return nil, fmt.Errorf("nstpl-sync has not seen the last change of %s yet, so its pending deletions are unknown: "+
			"%s, and then try again", quoted(repository.Name), advice)
	case pending == nil:
		return nil, fmt.Errorf("%s has no deletions to confirm", quoted(repository.Name))
	case !hashes.MatchString(pending.Commit):
		return nil, fmt.Errorf("the status of %s names no commit to confirm: %s", quoted(repository.Name), advice)
	case !strings.HasPrefix(pending.Commit, commit):
		return nil, fmt.Errorf("%s has no deletions of %s to confirm, but of %s: %s to see them",
			quoted(repository.Name), output.Commit(commit), output.Commit(pending.Commit), advice)
	case repository.Annotations[v1alpha1.ConfirmedCommitAnnotation] == pending.Commit:
		return nil, fmt.Errorf("%s of %s is already confirmed", output.Commit(pending.Commit), quoted(repository.Name))
	}
	return pending, nil
}

// show prints the namespaces that will be deleted, or which commit will be undone.
func (o *confirmation) show(repository *v1alpha1.PolicyRepository) {
	consequence := "deleted"
	if o.shown.rollback != nil {
		consequence = "applied"
		o.in.Note("%s. To be applied, which may undo newer changes", isOlder(o.shown.rollback))
	} else {
		deletions := o.shown.deletions
		total := max(int(deletions.Total), len(deletions.Namespaces))
		o.in.Note("%s no longer declares %s. To be DELETED, with everything in them:",
			output.Commit(deletions.Commit), output.Count(total, "namespace"))
		for _, line := range listed(deletions.Namespaces, total) {
			output.Note(o.in.ErrOut, "%s", line)
		}
	}
	if repository.Spec.Suspend {
		o.in.Note("Warning: %s is suspended: nothing is %s until 'kubectl nstpl sync resume %s'",
			quoted(repository.Name), consequence, repository.Name)
	}
}

// isOlder returns that a commit is older than the one in force.
func isOlder(rollback *v1alpha1.PendingRollback) string {
	at := func(time metav1.Time) string { return time.UTC().Format("2006-01-02 15:04:05Z") }
	return fmt.Sprintf("%s of %s is older than %s of %s, which is in force", output.Commit(short(rollback.Commit)),
		at(rollback.Committed), output.Commit(short(rollback.InForce)), at(rollback.InForceCommitted))
}

// annotate sets the annotation that confirms a commit.
func annotate(object *unstructured.Unstructured, confirmed *decision) {
	object.SetAnnotations(
		labels.Merge(object.GetAnnotations(), map[string]string{confirmed.annotation(): confirmed.commit}))
}
