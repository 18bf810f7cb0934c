package tree

import (
	"fmt"
	"io"
	"strings"

	"nstpl.dev/nstpl/plugin/internal/output"
)

// draw draws the policies of a node and the descendants of the node.
func (n *node) draw(w io.Writer, indent string) {
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
		branch, childIndent := "├── ", "│   "
		if i == len(n.Children)-1 {
			branch, childIndent = "└── ", "    "
		}
		output.Line(w, "%s%s%s", indent, branch, child.title())
		child.draw(w, indent+childIndent)
	}
}

// id returns the identifier of a node in a graph. The prefix distinguishes a namespace from a policyspace of the same
// name and from the cluster, and all from keywords of the graph language. Dashes are replaced, since they can begin an
// edge.
func (n *node) id() string {
	prefix := "d_"
	switch n.Kind {
	case namespaceKind:
		prefix = "n_"
	case clusterKind:
		prefix = "c_"
	}
	return prefix + strings.ReplaceAll(n.Name, "-", "_")
}

// graph is the syntax of a graph language.
type graph struct {
	// edge is the format of an edge, with two ids.
	edge string
	// node is the format of a node, with an id and a label.
	node string
	// newline separates the lines of a label.
	newline string
	// escape escapes the special characters in a label.
	escape *strings.Replacer
}

var (
	mermaid = graph{
		"  %s --> %s\n", "  %s[\"%s\"]\n", "<br/>",
		strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;", "#", "#35;", "&", "#amp;", "`", "#96;"),
	}
	dot = graph{"  %s -> %s;\n", "  %s [label=\"%s\"];\n", `\n`, strings.NewReplacer(`"`, `\"`, `\`, `\\`)}
)

func (g graph) draw(w io.Writer, n *node) {
	label := []string{n.Name}
	if quota := n.quota(); quota != "" {
		label = append(label, quota)
	}
	for _, binding := range n.RoleBindings {
		if binding.From == n.Name {
			label = append(label, "RoleBinding "+binding.Name)
		}
	}
	for i, line := range label {
		label[i] = g.escape.Replace(output.Escape(line))
	}
	fmt.Fprintf(w, g.node, n.id(), strings.Join(label, g.newline))
	for _, child := range n.Children {
		g.draw(w, child)
		fmt.Fprintf(w, g.edge, n.id(), child.id())
	}
}
