// Package constraint holds the commands about SecurityContextConstraints: scc review, scc who-can-use and scc
// preflight.
//
// Review decides as the operator's admission does, by the same package scc. What it needs to know comes from the
// cluster, or from files where --constraints is given (environment).
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
		Short: "Show which SecurityContextConstraints admit pods, and who may",
		Long: templates.LongDesc(`
			SecurityContextConstraints say what pods may ask for: users, capabilities, volumes, the host's features.
			A pod is admitted by the first that its service account or whoever creates it may use, and that allows
			all it asks for.`),
		Example: templates.Examples(`
			# Which constraints would admit the pods of a Deployment, and what would they set?
			kubectl nstpl scc review -f deployment.yaml -n team-a

			# Who may use the constraints "privileged"?
			kubectl nstpl scc who-can-use privileged

			# Which namespaces should be exempt before there are constraints?
			kubectl nstpl scc preflight`),
	}
	cmd.AddCommand(newReview(s), newWhoCanUse(s), newPreflight(s))
	return cmd
}
