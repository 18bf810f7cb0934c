package tree

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/plugin/internal/output"
)

// Values of node.Kind.
const (
	spaceKind     = "policyspace"
	namespaceKind = "namespace"
	// clusterKind is the kind of the node that is the parent of all roots in a cluster.
	clusterKind = "cluster"
)

// node is a policyspace or a namespace in a tree, or the parent of all roots in a cluster.
type node struct {
	Name string `json:"-"`
	Kind string `json:"-"`
	// Path has the names of the policyspaces above, the root first, of a policyspace that is drawn alone: corp/online.
	Path string `json:"path,omitempty"`
	// Commit is the hash of the commit in Git that is in force, or empty. Only a root has a commit, if the cluster
	// follows its tree in a PolicyRepository.
	Commit string `json:"commit,omitempty"`
	// Quota holds the limits by resource. Used holds the usage as far as it is counted, and only in a tree of the
	// cluster.
	Quota map[string]string `json:"quota,omitempty"`
	Used  map[string]string `json:"used,omitempty"`
	// Roles are the Roles of a namespace. RoleBindings are the RoleBindings that a policyspace declares, or that a
	// namespace has or inherits.
	Roles        []string  `json:"roles,omitempty"`
	RoleBindings []binding `json:"roleBindings,omitempty"`
	// Problem is the reason why the node is not in the tree where it should be, or why policies of a namespace are
	// unknown, or empty.
	Problem  string  `json:"problem,omitempty"`
	Children []*node `json:"-"`
}

// binding is a RoleBinding with its origin: the policyspace or template that declares it.
type binding struct {
	Name string `json:"name"`
	From string `json:"from"`
}

// title returns the text of a node in a drawing.
func (n *node) title() string {
	text := n.Name
	if n.Kind == spaceKind {
		text += "/"
	}
	if n.Commit != "" {
		text += "  " + output.Commit(output.ShortCommit(n.Commit))
	}
	if quota := n.quota(); quota != "" {
		text += "  quota " + quota
	}
	if n.Problem != "" {
		text += "  (" + n.Problem + ")"
	}
	return text
}

// quota returns the limits with the usage, if it is known: "pods=3/10".
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

// sort sorts the children of the node and of all of its descendants by name.
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
