// Package constraint holds the commands about SecurityContextConstraints: scc review, scc who-can-use and scc
// preflight.
//
// Review decides with package scc, as the operator's admission does. Its inputs come from the cluster or, with
// --constraints, from files (environment).
package constraint

import (
	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// New returns the command `kubectl nstpl scc`.
func New(s cli.Session) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "scc",
		Short: "Show which SecurityContextConstraints admit pods, and who may use them",
		Long: templates.LongDesc(`
			SecurityContextConstraints control which security-relevant fields pods may use: users, capabilities,
			volumes, and features of the host. A pod is admitted by the first constraints that allow all of its
			fields and that its service account or its creator may use.`),
		Example: templates.Examples(`
			# Show which constraints would admit the pods of a Deployment, and what they would set
			kubectl nstpl scc review -f deployment.yaml -n team-a

			# Show who may use the constraints "privileged"
			kubectl nstpl scc who-can-use privileged

			# Show which namespaces to exempt before you create the first constraints
			kubectl nstpl scc preflight`),
	}
	return cli.Subcommands(cmd, newReview(s), newWhoCanUse(s), newPreflight(s))
}
