package sync

import (
	"cmp"
	"context"
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
	output cli.FormatFlag
}

func newHistory(s cli.Session) *cobra.Command {
	o := &history{Session: s}
	cmd := &cobra.Command{
		Use:   "history NAME [-o json|yaml]",
		Short: "View the commits of a repository that were applied",
		Long: templates.LongDesc(`
			View the last commits of a repository that were applied, the newest first, and how long ago each was
			applied. The status of the repository keeps five commits. With -o json or -o yaml, the hashes are not
			abbreviated.`),
		Example: templates.Examples(`
			# View the commits that were applied
			kubectl nstpl sync history foo-corp`),
		DisableFlagsInUseLine: true,
		Args:                  cli.OneArg("NAME"),
		ValidArgsFunction:     s.CompleteObject(v1alpha1.PolicyRepositories),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.output.Check(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context(), args[0])
		},
	}
	o.output.AddTo(cmd, "", "Output format", cli.FormatJSON, cli.FormatYAML)
	return cmd
}

func (o *history) run(ctx context.Context, name string) error {
	c, err := o.Connect()
	if err != nil {
		return err
	}
	repository, err := c.PolicyRepository(ctx, name)
	if err != nil {
		return err
	}
	return o.write(repository.Status.History, time.Now())
}

// write prints commits in their order.
func (o *history) write(commits []v1alpha1.AppliedCommit, now time.Time) error {
	list := map[string]any{"commits": append([]v1alpha1.AppliedCommit{}, commits...)} // not null if there are none
	switch o.output.Format {
	case cli.FormatJSON:
		return output.JSON(o.Out, list)
	case cli.FormatYAML:
		return output.YAMLStream(o.Out, []any{list})
	}
	if len(commits) == 0 {
		o.Note("No sync history found")
		return nil
	}
	table := output.Table{Columns: []string{"Commit", "Author", "Subject", "Age"}}
	for _, c := range commits {
		table.Rows = append(table.Rows, []string{
			short(c.Commit), cmp.Or(c.Author, "<none>"), cmp.Or(c.Subject, "<none>"),
			duration.HumanDuration(now.Sub(c.Time.Time)),
		})
	}
	return table.Print(o.Out, false)
}
