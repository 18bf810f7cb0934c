package rollout

import (
	"fmt"

	"github.com/spf13/cobra"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

// oneTemplate passes the name in the argument TEMPLATE to run.
var oneTemplate = cli.TemplateResource("kubectl rollout").Named

// quoted returns a template in the notation of kubectl's errors about objects.
func quoted(name string) string {
	return fmt.Sprintf("%s %q", v1alpha1.NamespaceTemplates.GroupResource(), name)
}

// newEdit completes a command that changes a template. The operation is what the command prints behind the name of the
// template, such as "paused".
func newEdit(s cli.Session, cmd *cobra.Command, operation string, patch cli.Patch) *cobra.Command {
	e := cli.NewEdit(s, cmd, v1alpha1.NamespaceTemplates, operation, patch)
	cmd.Args = cli.OneArg("TEMPLATE")
	cmd.ValidArgsFunction = s.CompleteTemplate()
	cmd.RunE = oneTemplate(e.Run)
	return cmd
}
