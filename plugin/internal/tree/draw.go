package tree

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"nstpl.dev/nstpl/plugin/internal/output"
)

// Kinds of nodes.
const (
	spaceNode     = "policyspace"
	namespaceNode = "namespace"
	// clusterNode stands above the roots of a cluster.
	clusterNode = "cluster"
)

// treeNode is a policyspace or a namespace as it is drawn.
type treeNode struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Quota is what may be used, and Used what is, where there is a cluster to ask.
	Quota map[string]string `json:"quota,omitempty"`
	Used  map[string]string `json:"used,omitempty"`
	// Roles are those of a namespace. RoleBindings are those of a policyspace, or all that a namespace ends up with.
	Roles        []string      `json:"roles,omitempty"`
	RoleBindings []treeBinding `json:"roleBindings,omitempty"`
	// Problem says why the place of a policyspace is not known.
	Problem  string      `json:"problem,omitempty"`
	Children []*treeNode `json:"children,omitempty"`
}

type treeBinding struct {
	Name string `json:"name"`
	From string `json:"from"`
}

// title is a node in a line.
func (n *treeNode) title() string {
	text := n.Name
	if n.Kind == spaceNode {
		text += "/"
	}
	if quota := n.quota(); quota != "" {
		text += "  quota " + quota
	}
	if n.Problem != "" {
		text += "  (" + n.Problem + ")"
	}
	return text
}

func (n *treeNode) quota() string {
	parts := make([]string, 0, len(n.Quota))
	for _, name := range slices.Sorted(maps.Keys(n.Quota)) {
		hard := n.Quota[name]
		if used := n.Used[name]; used != "" {
			hard = used + "/" + hard
		}
		parts = append(parts, name+"="+hard)
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

// id names a node in a graph. In a folder no namespace is called as a policyspace is; in a cluster one may be. A dash could begin an
// edge, and a word of the language is no name.
func (n *treeNode) id() string {
	name := strings.ReplaceAll(n.Name, "-", "_")
	if n.Kind == namespaceNode {
		return "n_" + name
	}
	return "d_" + name
}

// graph is a language of graphs.
type graph struct {
	// edge has two ids, and node an id and a label.
	edge, node string
	// newline is between the lines of a label, in which escape hides what means something else.
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

// draw writes first a node, and then what is below it.
func (g graph) draw(w io.Writer, n *treeNode) {
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

// sort puts neighbours into the order of their names.
func (n *treeNode) sort() {
	slices.SortFunc(n.Children, func(a, b *treeNode) int { return strings.Compare(a.Name, b.Name) })
	for _, child := range n.Children {
		child.sort()
	}
}
