package command

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubectl/pkg/util/templates"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/plugin/internal/output"
)

const (
	mermaidFormat = "mermaid"
	dotFormat     = "dot"
)

type tree struct {
	session
	format string
}

func newTree(s session) *cobra.Command {
	o := &tree{session: s}
	cmd := &cobra.Command{
		Use:   "tree DIR [-o json|mermaid|dot]",
		Short: "Draw a tree of policies: spaces, namespaces and what they inherit",
		Long: templates.LongDesc(`
			Draw the tree of policies in a folder: its policyspaces and namespaces with their quotas, and in each namespace
			the RoleBindings that it has or inherits, by the directory that they come from. It must be valid: see
			"kubectl nstpl vet".`),
		Example: templates.Examples(`
			# Draw a tree
			kubectl nstpl tree foo-corp

			# As a picture for a page in Markdown
			kubectl nstpl tree foo-corp -o mermaid`),
		DisableFlagsInUseLine: true,
		Args:                  exactly(1, "the folder of a tree"),
		RunE: func(cmd *cobra.Command, args []string) error {
			switch o.format {
			case "", jsonFormat, mermaidFormat, dotFormat:
				return o.run(args[0])
			}
			return usageError(cmd, fmt.Errorf("--output is %q: it can be json, mermaid or dot", o.format))
		},
	}
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "Output format, in place of a drawing. One of: (json, mermaid, dot).")
	completeValues(cmd, "output", jsonFormat, mermaidFormat, dotFormat)
	return cmd
}

// treeNode is a directory as it is drawn.
type treeNode struct {
	Name string `json:"name"`
	// Kind is policyspace or namespace.
	Kind  string            `json:"kind"`
	Quota map[string]string `json:"quota,omitempty"`
	// Roles are those of a namespace. RoleBindings are those of a policyspace, or all that a namespace ends up with.
	Roles        []string      `json:"roles,omitempty"`
	RoleBindings []treeBinding `json:"roleBindings,omitempty"`
	Children     []*treeNode   `json:"children,omitempty"`
}

type treeBinding struct {
	Name string `json:"name"`
	From string `json:"from"`
}

func (o *tree) run(dir string) error {
	tree, err := o.validTree(dir)
	if err != nil {
		return err
	}
	root := newTreeNode(tree)
	switch o.format {
	case jsonFormat:
		return output.JSON(o.Out, root)
	case mermaidFormat:
		output.Line(o.Out, "graph TD")
		root.edges(o.Out, "  %s --> %s\n", "  %s[\"%s\"]\n", "<br/>")
	case dotFormat:
		output.Line(o.Out, "digraph %q {", root.Name)
		root.edges(o.Out, "  %q -> %q;\n", "  %q [label=\"%s\"];\n", `\n`)
		output.Line(o.Out, "}")
	default:
		output.Line(o.Out, "%s", root.title())
		root.draw(o.Out, "")
	}
	return nil
}

func newTreeNode(t *hierarchy.Tree) *treeNode {
	nodes := map[*hierarchy.Directory]*treeNode{}
	t.Visit(func(d *hierarchy.Directory) {
		node := &treeNode{Name: d.Name, Kind: "policyspace", Quota: hardOf(d.Quota)}
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
		node.Kind, node.RoleBindings = "namespace", nil
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
	hard := map[string]string{}
	for name, quantity := range quota.Spec.Hard {
		hard[string(name)] = quantity.String()
	}
	return hard
}

// title is a node in a line.
func (n *treeNode) title() string {
	text := n.Name
	if n.Kind == "policyspace" {
		text += "/"
	}
	if quota := n.quota(); quota != "" {
		text += "  quota " + quota
	}
	return text
}

func (n *treeNode) quota() string {
	parts := make([]string, 0, len(n.Quota))
	for _, name := range slices.Sorted(maps.Keys(n.Quota)) {
		parts = append(parts, name+"="+n.Quota[name])
	}
	return strings.Join(parts, ", ")
}

// draw draws what is below a node, and the policies of namespaces.
func (n *treeNode) draw(w io.Writer, indent string) {
	var policies []string
	for _, role := range n.Roles {
		policies = append(policies, "Role "+role)
	}
	for _, binding := range n.RoleBindings {
		policy := "RoleBinding " + binding.Name
		if binding.From != n.Name {
			policy += ", inherited from " + binding.From
		}
		policies = append(policies, policy)
	}
	bar := "│ "
	if len(n.Children) == 0 {
		bar = "  "
	}
	for _, policy := range policies {
		output.Line(w, "%s%s- %s", indent, bar, policy)
	}
	for i, child := range n.Children {
		branch, below := "├── ", "│   "
		if i == len(n.Children)-1 {
			branch, below = "└── ", "    "
		}
		output.Line(w, "%s%s%s", indent, branch, child.title())
		child.draw(w, indent+below)
	}
}

// edges writes a graph: first a node, and then what is below it. Names are unique in a tree, and DNS labels.
func (n *treeNode) edges(w io.Writer, edge, node, newline string) {
	label := []string{n.Name}
	if quota := n.quota(); quota != "" {
		label = append(label, quota)
	}
	for _, binding := range n.RoleBindings {
		if binding.From == n.Name {
			label = append(label, "RoleBinding "+binding.Name)
		}
	}
	fmt.Fprintf(w, node, "d-"+n.Name, strings.ReplaceAll(strings.Join(label, newline), `"`, "'")) // a word of the language is no name
	for _, child := range n.Children {
		child.edges(w, edge, node, newline)
		fmt.Fprintf(w, edge, "d-"+n.Name, "d-"+child.Name)
	}
}
