package hierarchy

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// authoritativeKinds are the kinds of which the namespaces of a tree contain the declared objects and no others.
var authoritativeKinds = []v1alpha1.GroupKind{
	{Group: rbacv1.GroupName, Kind: kindRole},
	{Group: rbacv1.GroupName, Kind: kindRoleBinding},
	{Kind: kindResourceQuota},
}

// Compile returns the objects that implement a valid tree, in the order in which they must be applied: cluster-scoped
// objects, ClusterRoles that allow the operator to bind the roles of the tree, NamespaceTemplates, PolicySpaces and
// Namespaces. Each object is as a person could have written it.
//
// A namespace moves to its policyspace after everything that it inherits there exists, even if a policyspace was
// renamed. The root's template is the last template, because the operator deletes objects that no template declares.
// policy decides what happens to undeclared Roles, RoleBindings and ResourceQuotas in the namespaces. Compile omits
// PodSecurityPolicies, which no longer exist in Kubernetes.
func (t *Tree) Compile(policy v1alpha1.AuthoritativePolicy) ([]*unstructured.Unstructured, error) {
	var objects []runtime.Object
	for _, object := range t.Cluster {
		if object.kind != kindPodSecurityPolicy {
			objects = append(objects, object.DeepCopyObject())
		}
	}
	for _, name := range t.boundRoles() {
		objects = append(objects, t.bindRole(name))
	}
	var spaces, templates, namespaces []runtime.Object
	var failed error
	t.Visit(func(d *Directory) {
		if d.Namespace != nil {
			namespaces = append(namespaces, d.namespace())
		} else {
			spaces = append(spaces, d.policySpace())
		}
		if template, err := d.template(policy); err != nil {
			failed = err
		} else if template != nil {
			templates = append(templates, template)
		}
	})
	if failed != nil {
		return nil, failed
	}
	templates = append(templates[1:], templates[0]) // the first is the root's, which always exists
	objects = slices.Concat(objects, templates, spaces, namespaces)
	compiled := make([]*unstructured.Unstructured, 0, len(objects))
	for _, object := range objects {
		fields, err := toFields(object)
		if err != nil {
			return nil, err
		}
		err = unstructured.SetNestedField(fields, t.Root.Name, "metadata", "labels", v1alpha1.TreeLabel)
		if err != nil {
			return nil, err
		}
		compiled = append(compiled, &unstructured.Unstructured{Object: fields})
	}
	return compiled, nil
}

// bindableRoles are the ClusterRoles that the operator may always bind: see manifests/rbac/populate.yaml.
var bindableRoles = []string{"admin", "edit", "view"}

// boundRoles returns the ClusterRoles that RoleBindings of the tree name, without the bindable ones, sorted.
func (t *Tree) boundRoles() []string {
	bound := map[string]bool{}
	t.Visit(func(d *Directory) {
		for _, binding := range d.RoleBindings {
			if binding.RoleRef.Kind == kindClusterRole && !slices.Contains(bindableRoles, binding.RoleRef.Name) {
				bound[binding.RoleRef.Name] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(bound))
}

// bindRolePrefix begins the names of bind roles, and of no other ClusterRoles of trees. The names of the tree and of
// the bound ClusterRole follow, with a dot between them.
const bindRolePrefix = "nstpl-operator-tree-"

// IsBindRole reports whether a ClusterRole of that name allows the operator to bind others. Earlier versions had one
// for all ClusterRoles of a tree.
func IsBindRole(name string) bool { return strings.HasPrefix(name, bindRolePrefix) }

// bindRole returns the bind role for a ClusterRole: it allows the operator to bind that one. The user who applies it
// needs the same permission. Everyone who may change one directory of the tree can have it fail for lack of this
// permission, so each bound ClusterRole has a bind role of its own.
func (t *Tree) bindRole(bound string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		TypeMeta: metav1.TypeMeta{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: kindClusterRole},
		ObjectMeta: metav1.ObjectMeta{
			Name:   bindRolePrefix + t.Root.Name + "." + bound,
			Labels: map[string]string{v1alpha1.AggregateLabel: "true"},
		},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"},
			ResourceNames: []string{bound}, Verbs: []string{"bind"},
		}},
	}
}

// toFields returns an object as unstructured fields, without those that only exist because of Go's zero values. Roles
// and bindings that grant nothing say so.
func toFields(object runtime.Object) (map[string]any, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, fmt.Errorf("convert %T: %w", object, err)
	}
	removeNulls(fields)
	for _, part := range []string{"spec", "status"} {
		if inside, ok := fields[part].(map[string]any); ok && len(inside) == 0 {
			delete(fields, part)
		}
	}
	render.DeclareDefaults(&unstructured.Unstructured{Object: fields})
	return fields, nil
}

// removeNulls removes fields that are null because of Go's zero values, such as the rules of a Role without any.
func removeNulls(fields map[string]any) {
	for key, value := range fields {
		if value == nil {
			delete(fields, key)
		} else if inside, ok := value.(map[string]any); ok {
			removeNulls(inside)
		}
	}
}

// namespace returns the Namespace of a directory with the label of its policyspace.
func (d *Directory) namespace() *corev1.Namespace {
	ns := d.Namespace.DeepCopy()
	if d.Parent != nil {
		metav1.SetMetaDataLabel(&ns.ObjectMeta, v1alpha1.PolicySpaceLabel, d.Parent.Name)
	}
	return ns
}

func (d *Directory) policySpace() *v1alpha1.PolicySpace {
	space := &v1alpha1.PolicySpace{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "PolicySpace"},
		ObjectMeta: metav1.ObjectMeta{Name: d.Name},
	}
	if d.Parent != nil {
		space.Spec.Parent = d.Parent.Name
	}
	if d.Quota != nil && len(d.Quota.Spec.Hard) > 0 {
		space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: d.Quota.Spec.Hard.DeepCopy()}
	}
	return space
}

// template returns the template with the objects of a directory, for the namespaces below a policyspace or for one
// namespace. It returns nil if there are no objects, but never for the root, whose template makes the tree
// authoritative.
func (d *Directory) template(policy v1alpha1.AuthoritativePolicy) (*v1alpha1.NamespaceTemplate, error) {
	template := &v1alpha1.NamespaceTemplate{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "NamespaceTemplate"},
		ObjectMeta: metav1.ObjectMeta{Name: d.Name},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: DepthLabel(d.Name), Operator: metav1.LabelSelectorOpExists,
				}},
			}},
			// The defaults are declared, so that they are restored.
			DriftPolicy: v1alpha1.DriftCorrect, FailurePolicy: v1alpha1.FailureFail,
			DeletionPolicy: v1alpha1.DeletionDelete, // a namespace that moves loses what it inherited
		},
	}
	if d.Namespace != nil {
		// The depth label exists only while the namespace is in the tree: one that existed before must be adopted.
		root := d.Lineage()[0].Name
		template.Spec.Namespaces.LabelSelector.MatchExpressions[0].Key = DepthLabel(root)
		template.Spec.Namespaces.LabelSelector.MatchLabels = map[string]string{corev1.LabelMetadataName: d.Name}
	}
	objects, err := d.populated()
	if err != nil {
		return nil, err
	}
	template.Spec.Templates = objects
	if d.Parent == nil {
		template.Spec.Authoritative, template.Spec.AuthoritativePolicy = authoritativeKinds, policy
	}
	if len(template.Spec.Templates) == 0 && len(template.Spec.Authoritative) == 0 {
		return nil, nil
	}
	return template, nil
}

// populated returns the objects of a directory as its template declares them: without a namespace, and with tokens
// escaped.
func (d *Directory) populated() ([]runtime.RawExtension, error) {
	var objects []runtime.Object
	for _, role := range d.Roles {
		role = role.DeepCopy()
		role.Namespace = ""
		objects = append(objects, role)
	}
	for _, binding := range d.RoleBindings {
		binding = binding.DeepCopy()
		binding.Name, binding.Namespace = d.Name+"."+binding.Name, ""
		objects = append(objects, binding)
	}
	if d.Namespace != nil && d.Quota != nil {
		quota := d.Quota.DeepCopy()
		quota.Namespace = ""
		objects = append(objects, quota)
	}
	raw := make([]runtime.RawExtension, 0, len(objects))
	for _, object := range objects {
		fields, err := toFields(object)
		if err != nil {
			return nil, err
		}
		data, err := json.Marshal(render.Escaped(fields))
		if err != nil {
			return nil, err
		}
		raw = append(raw, runtime.RawExtension{Raw: data})
	}
	return raw, nil
}
