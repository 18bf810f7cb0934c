// Package tree holds the commands that show trees of policies: tree, which draws a tree, and hydrate, which prints the
// objects that a tree is compiled to.
//
// A tree comes from a directory (newDirectoryNode) or from the cluster (clusterNode). Both functions return the same
// kind of nodes, which all output formats print.
package tree

import (
	"context"
	"strings"

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
	output cli.ListFlags
	// isPartial reports whether only what the owner of a namespace may read was read.
	isPartial bool
}

// New returns the command `kubectl nstpl tree`.
func New(s cli.Session) *cobra.Command {
	o := &tree{Session: s}
	cmd := &cobra.Command{
		Use:   "tree [DIR | SPACE] [-o mermaid|dot|name|json|yaml|...]",
		Short: "Draw a tree of policies: policyspaces, namespaces and policies",
		Long: templates.LongDesc(`
			Draw a tree of policies: the policyspaces and namespaces with their quotas, and the RoleBindings that each
			namespace has or inherits, with their origin.

			Without DIR, draw the tree of the cluster: its PolicySpaces, the namespaces in them, what templates
			declare in these namespaces, and the usage of each quota. If the cluster follows a tree in a
			PolicyRepository, its root has the commit that is in force. If you may not read the policies of the
			cluster, as the owner of a namespace, draw the policyspaces in the labels of the current namespace.

			With DIR, draw the tree in a directory. That tree must be valid: see "kubectl nstpl vet". With SPACE,
			draw one policyspace of the cluster, what is below it, and the path above it. A directory of that name
			takes precedence, but not over policyspace/SPACE.

			The quota of a namespace is the smallest limit of its ResourceQuotas for each resource. ResourceQuotas with
			scopes are left out, since they limit only some of its objects.

			With -o json or -o yaml, the output is a list of policyspaces and namespaces, each with its parent.`),
		Example: templates.Examples(`
			# Draw the policyspaces of the cluster, with the usage of their quotas
			kubectl nstpl tree

			# Draw one policyspace and what is below it
			kubectl nstpl tree payments

			# Draw a tree in a directory
			kubectl nstpl tree foo-corp

			# Draw a tree as a Mermaid graph, for a Markdown page
			kubectl nstpl tree foo-corp -o mermaid`),
		Args:              cli.AtMostOneArg("DIR or SPACE"),
		ValidArgsFunction: completeSpaces(s),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.run(cmd.Context(), args)
		},
	}
	s.AddChunkSizeFlag(cmd)
	o.output.AddTo(cmd, cli.ListOptions{Names: true, Formats: []string{mermaidFormat, dotFormat}})
	cmd.Flag("output").Usage = "Output format, instead of a drawing." +
		strings.TrimPrefix(cmd.Flag("output").Usage, "Output format.")
	return cmd
}

func (o *tree) run(ctx context.Context, args []string) error {
	root, err := o.root(ctx, args)
	if err != nil {
		return err
	}
	switch o.output.Format {
	case mermaidFormat:
		output.Line(o.Out, "graph TD")
		mermaid.draw(o.Out, root)
	case dotFormat:
		output.Line(o.Out, "digraph %q {", root.Name)
		dot.draw(o.Out, root)
		output.Line(o.Out, "}")
	case "":
		roots := []*node{root.belowPath()}
		if root.Kind == clusterKind {
			roots = root.Children
		}
		for _, root := range roots {
			output.Line(o.Out, "%s", root.title())
			root.draw(o.Out, "")
		}
	default:
		return o.print(root)
	}
	return nil
}

// root returns the node to draw: the root of the tree in a directory, a policyspace or, without an argument, the parent
// of the roots of the cluster.
func (o *tree) root(ctx context.Context, args []string) (*node, error) {
	if len(args) == 0 {
		return o.clusterNode(ctx)
	}
	if space := spaceIn(args[0]); space != "" {
		return o.spaceNode(ctx, space)
	}
	tree, err := o.ValidTree(args[0])
	if err != nil {
		return nil, err
	}
	return newDirectoryNode(tree), nil
}
