// Package tree holds the commands that show trees of policies: tree, which draws one, and hydrate, which prints the
// objects that one stands for.
//
// A tree comes from a folder (newFolderNode) or from the cluster (clusterNode). Both become nodes, which the drawing,
// the two languages of graphs and the JSON output show alike.
package tree

import (
	"context"

	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

const (
	mermaidFormat = "mermaid"
	dotFormat     = "dot"
)

type tree struct {
	cli.Session
	output cli.FormatFlag
}

// New returns the command `kubectl nstpl tree`.
func New(s cli.Session) *cobra.Command {
	o := &tree{Session: s}
	cmd := &cobra.Command{
		Use:   "tree [DIR] [-o json|mermaid|dot]",
		Short: "Draw a tree of policies: spaces, namespaces and what they inherit",
		Long: templates.LongDesc(`
			Draw a tree of policies: its policyspaces and namespaces with their quotas, and in each namespace the
			RoleBindings that it has or inherits, by where they come from. Without DIR it is that of the cluster: its
			PolicySpaces, the namespaces in them, what templates declare there, and what is used of each quota. With
			DIR it is the tree in a folder, which must be valid: see "kubectl nstpl vet".`),
		Example: templates.Examples(`
			# Draw the cluster's policyspaces, with what is used of their quotas
			kubectl nstpl tree

			# Draw a tree in a folder
			kubectl nstpl tree foo-corp

			# As a picture for a page in Markdown
			kubectl nstpl tree foo-corp -o mermaid`),
		DisableFlagsInUseLine: true,
		Args:                  cli.AtMostOneArg("DIR"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.output.Check(cmd); err != nil {
				return err
			}
			return o.run(cmd.Context(), args)
		},
	}
	o.output.AddTo(cmd, "", "Output format, in place of a drawing", cli.FormatJSON, mermaidFormat, dotFormat)
	return cmd
}

func (o *tree) run(ctx context.Context, args []string) error {
	root, err := o.root(ctx, args)
	if err != nil {
		return err
	}
	switch o.output.Format {
	case cli.FormatJSON:
		return output.JSON(o.Out, root)
	case mermaidFormat:
		output.Line(o.Out, "graph TD")
		mermaid.draw(o.Out, root)
	case dotFormat:
		output.Line(o.Out, "digraph %q {", root.Name)
		dot.draw(o.Out, root)
		output.Line(o.Out, "}")
	default:
		tops := []*node{root}
		if root.Kind == clusterKind {
			tops = root.Children
		}
		for _, top := range tops {
			output.Line(o.Out, "%s", top.title())
			top.draw(o.Out, "")
		}
	}
	return nil
}

// root returns the node to draw: the root of the tree in a folder or, without one, the node above the roots of the
// cluster.
func (o *tree) root(ctx context.Context, args []string) (*node, error) {
	if len(args) == 0 {
		return o.clusterNode(ctx)
	}
	tree, err := o.ValidTree(args[0])
	if err != nil {
		return nil, err
	}
	return newFolderNode(tree), nil
}
