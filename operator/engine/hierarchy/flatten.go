package hierarchy

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// Flat is a namespace with all objects that it inherits.
type Flat struct {
	*Directory
	Namespace *corev1.Namespace
	Roles     []*rbacv1.Role
	// RoleBindings are those of the namespace and of all policyspaces above it, the root's first. The names are
	// <directory>.<name>, so that no two of them are equal.
	RoleBindings []Inherited
	// Quota is that of the namespace. Quotas of policyspaces limit the sum over many namespaces.
	Quota *corev1.ResourceQuota
}

// Inherited is a RoleBinding in a namespace, and the directory that declares it.
type Inherited struct {
	*rbacv1.RoleBinding
	From *Directory
}

// Flatten returns the namespaces of a valid tree, in the order of the tree.
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

// FlatObjects returns the objects in the namespaces of a valid tree, in the order of the tree. It does not return the
// Namespaces.
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
