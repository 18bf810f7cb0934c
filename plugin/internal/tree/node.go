package tree

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Values of node.Kind.
const (
	spaceKind     = "policyspace"
	namespaceKind = "namespace"
	// clusterKind is for the node above the roots of a cluster.
	clusterKind = "cluster"
)

// node is a policyspace or a namespace of a tree.
type node struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	// Quota holds limits by resource. Used holds what is used of them, for a tree in the cluster.
	Quota map[string]string `json:"quota,omitempty"`
	Used  map[string]string `json:"used,omitempty"`
	// Roles are those of a namespace. RoleBindings are those of a policyspace, or all that a namespace has or inherits.
	Roles        []string  `json:"roles,omitempty"`
	RoleBindings []binding `json:"roleBindings,omitempty"`
	// Problem is why the place of the node in the tree is not known, or empty.
	Problem  string  `json:"problem,omitempty"`
	Children []*node `json:"children,omitempty"`
}

// binding is a RoleBinding with its origin: the policyspace or template that declares it.
type binding struct {
	Name string `json:"name"`
	From string `json:"from"`
}

// title returns the line of a node in a drawing.
func (n *node) title() string {
	text := n.Name
	if n.Kind == spaceKind {
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

// quota returns the limits, each after what is used of it if that is known: "pods=3/10".
func (n *node) quota() string {
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

// sort sorts the children of every node by name.
func (n *node) sort() {
	slices.SortFunc(n.Children, func(a, b *node) int { return strings.Compare(a.Name, b.Name) })
	for _, child := range n.Children {
		child.sort()
	}
}

func quantities(list corev1.ResourceList) map[string]string {
	texts := map[string]string{}
	for name, quantity := range list {
		texts[string(name)] = quantity.String()
	}
	return texts
}
