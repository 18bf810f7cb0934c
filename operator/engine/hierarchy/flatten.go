package hierarchy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Flat is what a namespace ends up with, inheritance resolved.
type Flat struct {
	*Directory
	Namespace *corev1.Namespace
	Roles     []*rbacv1.Role
	// RoleBindings are its own and those of all policyspaces above it, called <directory>.<name> at every level, so
	// that none collide; the root's come first.
	RoleBindings []Inherited
	// Quota is its own. Those of policyspaces are for sums over many namespaces, and are in none.
	Quota *corev1.ResourceQuota
}

// Inherited is a RoleBinding as a namespace gets it, and the directory that it comes from.
type Inherited struct {
	*rbacv1.RoleBinding
	From *Directory
}

// Flatten returns what each namespace of a valid tree ends up with, in the order of the tree.
func (t *Tree) Flatten() []Flat {
	var all []Flat
	t.Visit(func(d *Directory) {
		if d.Namespace == nil {
			return
		}
		flat := Flat{Directory: d, Namespace: d.Namespace.DeepCopy()}
		for _, role := range d.Roles {
			role = role.DeepCopy()
			role.Namespace = d.Name
			flat.Roles = append(flat.Roles, role)
		}
		for _, above := range d.Lineage() {
			for _, binding := range above.RoleBindings {
				binding = binding.DeepCopy()
				binding.Name, binding.Namespace = above.Name+"."+binding.Name, d.Name
				flat.RoleBindings = append(flat.RoleBindings, Inherited{binding, above})
			}
		}
		if d.Quota != nil {
			flat.Quota = d.Quota.DeepCopy()
			flat.Quota.Namespace = d.Name
		}
		all = append(all, flat)
	})
	return all
}

// Visit calls do for every directory, those above before those below, and neighbours in the order of their names.
func (t *Tree) Visit(do func(*Directory)) { t.Root.visit(do) }

func (d *Directory) visit(do func(*Directory)) {
	do(d)
	children := slices.Clone(d.Children)
	slices.SortFunc(children, func(a, b *Directory) int { return strings.Compare(a.Name, b.Name) })
	for _, child := range children {
		child.visit(do)
	}
}

// Lineage returns the directories from the root down to this one, itself included.
func (d *Directory) Lineage() []*Directory {
	var line []*Directory
	for at := d; at != nil; at = at.Parent {
		line = append(line, at)
	}
	slices.Reverse(line)
	return line
}

// FlatObjects returns what the namespaces of a valid tree end up with as plain objects in them, in the order of the
// tree.
func (t *Tree) FlatObjects() ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, flat := range t.Flatten() {
		var all []runtime.Object
		for _, role := range flat.Roles {
			all = append(all, role)
		}
		for _, binding := range flat.RoleBindings {
			all = append(all, binding.RoleBinding)
		}
		if flat.Quota != nil {
			all = append(all, flat.Quota)
		}
		for _, object := range all {
			fields, err := toFields(object)
			if err != nil {
				return nil, err
			}
			objects = append(objects, &unstructured.Unstructured{Object: fields})
		}
	}
	return objects, nil
}
