package rollout

import (
	"fmt"

	"github.com/spf13/cobra"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

// oneTemplate accepts exactly one argument TEMPLATE and passes the name of the template to run.
func oneTemplate(run func(cmd *cobra.Command, name string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := cli.OneArg("TEMPLATE")(cmd, args); err != nil {
			return err
		}
		name, err := cli.TemplateResource("kubectl rollout").Name(args[0])
		if err != nil {
			return cli.UsageError(cmd, err)
		}
		return run(cmd, name)
	}
}

// quoted returns a template in the notation of kubectl's errors about objects.
func quoted(name string) string {
	return fmt.Sprintf("%s %q", v1alpha1.NamespaceTemplates.GroupResource(), name)
}

// newEdit completes a command that changes a template. The operation is what the command prints behind the name of the
// template, such as "paused".
func newEdit(s cli.Session, cmd *cobra.Command, operation string, patch cli.Patch) *cobra.Command {
	e := cli.NewEdit(s, cmd, v1alpha1.NamespaceTemplates, operation, patch)
	cmd.ValidArgsFunction = s.CompleteTemplate()
	cmd.RunE = oneTemplate(e.Run)
	return cmd
}
