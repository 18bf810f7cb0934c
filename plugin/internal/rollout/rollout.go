// Package rollout holds the commands about rollouts: how a changed template reaches the namespaces that exist.
//
// The operator rolls out templates and reports in their status how far it has come. Status, with the pure function
// newProgress, prints that status. The other commands change the template, as a user could with kubectl edit, so
// admission vets the result with the permissions of the user. The revisions of a template are ControllerRevisions in
// the namespace of the operator, which only the operator writes.
package rollout

import (
	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// New returns the command `kubectl nstpl rollout`.
func New(s cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout",
		Short: "Watch, pause, resume and take back changes of a template",
		Long: templates.LongDesc(`
			A changed template reaches the namespaces that exist step by step. Watch this rollout, pause and resume
			it, and roll the template back to an earlier revision.

			TEMPLATE is the name of a NamespaceTemplate, such as budget or nstpl/budget.`),
		Example: templates.Examples(`
			# Watch how the change of a template reaches the namespaces
			kubectl nstpl rollout status budget

			# Roll the template back to the previous revision
			kubectl nstpl rollout undo budget`),
	}
	return cli.Subcommands(cmd, newStatus(s), newHistory(s), newUndo(s), newPause(s), newResume(s), newRestart(s))
}
