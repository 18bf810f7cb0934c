package sync

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

type history struct {
	cli.Session
	contexts cli.Contexts
	output   cli.ListFlags
}

func newHistory(s cli.Session) *cobra.Command {
	o := &history{Session: s}
	cmd := &cobra.Command{
		Use:   "history NAME [-o json|yaml|...] [--contexts=CONTEXT,...]",
		Short: "View the commits of a repository that were applied",
		Long: templates.LongDesc(`
			View the last commits of a repository that were applied, the newest first, and how long ago each was
			applied. The status of the repository keeps five commits. With -o json or -o yaml, the hashes are not
			abbreviated.

			With --contexts, the command reads several clusters at once. A cluster that does not answer within ten
			seconds, or within --request-timeout, is a note, and the exit status is 1.`),
		Example: templates.Examples(`
			# View the commits that were applied
			kubectl nstpl sync history foo-corp

			# Compare the commits in two clusters
			kubectl nstpl sync history foo-corp --contexts=test,production`),
		Args:              cli.OneArg("NAME"),
		ValidArgsFunction: s.CompleteObject(v1alpha1.PolicyRepositories),
		RunE: oneRepository(func(cmd *cobra.Command, name string) error {
			return o.run(cmd.Context(), name)
		}),
	}
	o.contexts.AddTo(cmd, s)
	o.output.AddTo(cmd, cli.ListOptions{})
	return cmd
}

// applied is a commit that was applied in the cluster of a context.
type applied struct {
	// Context is empty without --contexts.
	Context string `json:"context,omitempty"`
	v1alpha1.AppliedCommit
}

func (o *history) run(ctx context.Context, name string) error {
	replies, failed := cli.Split(o.Session, cli.Ask(ctx, o.Session, o.contexts,
		func(ctx context.Context, in cli.Source) ([]v1alpha1.AppliedCommit, error) {
			repository, err := in.Cluster.PolicyRepository(ctx, name)
			if err != nil {
				return nil, err
			}
			return repository.Status.History, nil
		}))
	var commits []applied
	for _, r := range replies {
		for _, commit := range r.Value {
			commits = append(commits, applied{r.Context, commit})
		}
	}
	if len(commits) > 0 || failed == nil {
		if err := o.write(commits, time.Now()); err != nil {
			return err
		}
	}
	return failed
}

// write prints commits in their order.
func (o *history) write(commits []applied, now time.Time) error {
	return cli.PrintList(o.Session, &o.output, cli.Printed[applied]{
		Kind: "AppliedCommitList", Items: commits, Empty: "No sync history found",
		Table: func(commits []applied) output.Table { return o.table(commits, now) },
	})
}

func (o *history) table(commits []applied, now time.Time) output.Table {
	table := output.Table{Columns: []string{"Commit", "Author", "Subject", "Age"}}
	if len(o.contexts) > 0 {
		table.Columns = slices.Concat([]string{"Context"}, table.Columns)
	}
	for _, c := range commits {
		row := []string{
			short(c.Commit), cmp.Or(c.Author, "<none>"), cmp.Or(c.Subject, "<none>"),
			duration.HumanDuration(now.Sub(c.Time.Time)),
		}
		if len(o.contexts) > 0 {
			row = slices.Concat([]string{c.Context}, row)
		}
		table.Rows = append(table.Rows, row)
	}
	return table
}
