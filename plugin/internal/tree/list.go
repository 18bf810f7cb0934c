package tree

import (
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

// listed is a policyspace or a namespace in the list that a tree is in JSON, YAML and the other formats of kubectl.
type listed struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Parent is the name of the policyspace above, or empty for a root.
	Parent string `json:"parent,omitempty"`
	node
}

// list returns the nodes of a tree in the order of the drawing.
func (n *node) list(parent string) []listed {
	var nodes []listed
	if n.Kind != clusterKind {
		kind := "Namespace"
		if n.Kind == spaceKind {
			kind = "PolicySpace"
		}
		nodes, parent = []listed{{Kind: kind, Name: n.Name, Parent: parent, node: *n}}, n.Name
	}
	for _, child := range n.Children {
		nodes = append(nodes, child.list(parent)...)
	}
	return nodes
}

func (o *tree) print(root *node) error {
	above := root.Path[strings.LastIndex(root.Path, "/")+1:]
	return cli.PrintList(o.Session, &o.output, cli.Printed[listed]{
		Kind: "PolicyTreeList", Items: root.list(above),
		Name: func(n listed) string {
			if n.node.Kind == spaceKind {
				return "policyspace." + v1alpha1.GroupVersion.Group + "/" + n.Name
			}
			return "namespace/" + n.Name
		},
	})
}
