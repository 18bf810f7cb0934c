package tree

import (
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// newDirectoryNode returns the root of a tree in a directory, with all of its descendants.
func newDirectoryNode(t *hierarchy.Tree) *node {
	nodes := map[*hierarchy.Directory]*node{}
	t.Visit(func(d *hierarchy.Directory) {
		n := &node{Name: d.Name, Kind: spaceKind}
		if d.Quota != nil {
			n.Quota = quantities(d.Quota.Spec.Hard)
		}
		for _, b := range d.RoleBindings {
			n.RoleBindings = append(n.RoleBindings, binding{b.Name, d.Name})
		}
		nodes[d] = n
		if d.Parent != nil {
			nodes[d.Parent].Children = append(nodes[d.Parent].Children, n)
		}
	})
	for _, flat := range t.Flatten() {
		n := nodes[flat.Directory]
		n.Kind, n.RoleBindings = namespaceKind, nil
		for _, role := range flat.Roles {
			n.Roles = append(n.Roles, role.Name)
		}
		for _, b := range flat.RoleBindings {
			n.RoleBindings = append(n.RoleBindings, binding{b.Name, b.From.Name})
		}
	}
	return nodes[t.Root]
}
