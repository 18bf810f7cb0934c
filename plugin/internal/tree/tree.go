package tree

import (
	"context"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
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

func New(s cli.Session) *cobra.Command {
	o := &tree{Session: s}
	cmd := &cobra.Command{
		Use:   "tree [DIR] [-o json|mermaid|dot]",
		Short: "Draw a tree of policies: spaces, namespaces and what they inherit",
		Long: templates.LongDesc(`
			Draw a tree of policies: its policyspaces and namespaces with their quotas, and in each namespace the RoleBindings
			that it has or inherits, by where they come from. Without DIR it is that of the cluster: its PolicySpaces, the
			namespaces in them, what templates declare there, and what is used of each quota. With DIR it is the tree in a
			folder, which must be valid: see "kubectl nstpl vet".`),
		Example: templates.Examples(`
			# Draw the cluster's policyspaces, with what is used of their quotas
			kubectl nstpl tree

			# Draw a tree in a folder
			kubectl nstpl tree foo-corp

			# As a picture for a page in Markdown
			kubectl nstpl tree foo-corp -o mermaid`),
		DisableFlagsInUseLine: true,
		Args:                  cli.AtMostOneArg("the folder of a tree"),
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
		tops := []*treeNode{root}
		if root.Kind == clusterNode {
			tops = root.Children
		}
		for _, top := range tops {
			output.Line(o.Out, "%s", top.title())
			top.draw(o.Out, "")
		}
	}
	return nil
}

// root returns what to draw: the root of a folder's tree, or what is above those of the cluster.
func (o *tree) root(ctx context.Context, args []string) (*treeNode, error) {
	if len(args) == 0 {
		return o.ofCluster(ctx)
	}
	tree, err := o.ValidTree(args[0])
	if err != nil {
		return nil, err
	}
	return newTreeNode(tree), nil
}

func newTreeNode(t *hierarchy.Tree) *treeNode {
	nodes := map[*hierarchy.Directory]*treeNode{}
	t.Visit(func(d *hierarchy.Directory) {
		node := &treeNode{Name: d.Name, Kind: spaceNode, Quota: hardOf(d.Quota)}
		for _, binding := range d.RoleBindings {
			node.RoleBindings = append(node.RoleBindings, treeBinding{binding.Name, d.Name})
		}
		nodes[d] = node
		if d.Parent != nil {
			nodes[d.Parent].Children = append(nodes[d.Parent].Children, node)
		}
	})
	for _, flat := range t.Flatten() {
		node := nodes[flat.Directory]
		node.Kind, node.RoleBindings = namespaceNode, nil
		for _, role := range flat.Roles {
			node.Roles = append(node.Roles, role.Name)
		}
		for _, binding := range flat.RoleBindings {
			node.RoleBindings = append(node.RoleBindings, treeBinding{binding.Name, binding.From.Name})
		}
	}
	return nodes[t.Root]
}

func hardOf(quota *corev1.ResourceQuota) map[string]string {
	if quota == nil {
		return nil
	}
	return written(quota.Spec.Hard)
}

func written(list corev1.ResourceList) map[string]string {
	texts := map[string]string{}
	for name, quantity := range list {
		texts[string(name)] = quantity.String()
	}
	return texts
}
