package tree

import (
	"fmt"
	"io"
	"strings"

	"nstpl.dev/nstpl/plugin/internal/output"
)

// draw draws the policies of a node and the nodes below it.
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
		branch, below := "├── ", "│   "
		if i == len(n.Children)-1 {
			branch, below = "└── ", "    "
		}
		output.Line(w, "%s%s%s", indent, branch, child.title())
		child.draw(w, indent+below)
	}
}

// id returns the identifier of a node in a graph. The prefix keeps a namespace apart from a policyspace of the same
// name, which there may be in a cluster, and from the keywords of the language. Dashes are replaced since one could
// begin an edge.
func (n *node) id() string {
	name := strings.ReplaceAll(n.Name, "-", "_")
	if n.Kind == namespaceKind {
		return "n_" + name
	}
	return "d_" + name
}

// graph is how a language writes graphs.
type graph struct {
	// edge is the format of two ids, and node that of an id and a label.
	edge, node string
	// newline separates the lines of a label. Escape replaces what has a meaning in labels.
	newline string
	escape  *strings.Replacer
}

var (
	mermaid = graph{
		"  %s --> %s\n", "  %s[\"%s\"]\n", "<br/>",
		strings.NewReplacer(`"`, "#quot;", "<", "#lt;", ">", "#gt;", "#", "#35;", "&", "#amp;", "`", "#96;"),
	}
	dot = graph{"  %s -> %s;\n", "  %s [label=\"%s\"];\n", `\n`, strings.NewReplacer(`"`, `\"`, `\`, `\\`)}
)

// draw writes a node and then the nodes below it.
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
