package constraint

import (
	"encoding/json"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
)

// fileRBAC are the roles and bindings in files.
type fileRBAC struct {
	clusterRoles []*rbacv1.ClusterRole
	// rules are those of the roles. The namespace of a ClusterRole is empty.
	rules    map[types.NamespacedName][]rbacv1.PolicyRule
	bindings []fileBinding
}

// fileBinding is a RoleBinding or, with an empty namespace, a ClusterRoleBinding.
type fileBinding struct {
	namespace string
	role      rbacv1.RoleRef
	subjects  []rbacv1.Subject
}

// newFileRBAC returns the roles and bindings among objects. Objects without a namespace are in the given one.
func newFileRBAC(objects []*unstructured.Unstructured, namespace string) (*fileRBAC, error) {
	r := &fileRBAC{rules: map[types.NamespacedName][]rbacv1.PolicyRule{}}
	for _, object := range objects {
		if object.GroupVersionKind().Group != rbacv1.GroupName {
			continue
		}
		if err := r.add(object, namespace); err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	for _, role := range r.clusterRoles {
		if err := r.aggregate(role); err != nil {
			return nil, fmt.Errorf("ClusterRole %s: %w", role.Name, err)
		}
	}
	return r, nil
}

func (r *fileRBAC) add(object *unstructured.Unstructured, namespace string) error {
	if own := object.GetNamespace(); own != "" {
		namespace = own
	}
	data, err := json.Marshal(object.Object)
	if err != nil {
		return err
	}
	switch object.GetKind() {
	case v1alpha1.ClusterRoleKind:
		role := &rbacv1.ClusterRole{}
		err = json.Unmarshal(data, role)
		r.clusterRoles = append(r.clusterRoles, role)
		r.rules[types.NamespacedName{Name: role.Name}] = role.Rules
	case v1alpha1.RoleKind:
		role := &rbacv1.Role{}
		err = json.Unmarshal(data, role)
		r.rules[types.NamespacedName{Namespace: namespace, Name: role.Name}] = role.Rules
	case "ClusterRoleBinding":
		binding := &rbacv1.ClusterRoleBinding{}
		err = json.Unmarshal(data, binding)
		r.bindings = append(r.bindings, fileBinding{"", binding.RoleRef, binding.Subjects})
	case "RoleBinding":
		binding := &rbacv1.RoleBinding{}
		err = json.Unmarshal(data, binding)
		r.bindings = append(r.bindings, fileBinding{namespace, binding.RoleRef, binding.Subjects})
	}
	return err
}

// aggregate gives an aggregated ClusterRole the rules of those that it selects, as kube-controller-manager does.
func (r *fileRBAC) aggregate(role *rbacv1.ClusterRole) error {
	if role.AggregationRule == nil {
		return nil
	}
	var rules []rbacv1.PolicyRule
	for i := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&role.AggregationRule.ClusterRoleSelectors[i])
		if err != nil {
			return err
		}
		for _, other := range r.clusterRoles {
			if selector.Matches(labels.Set(other.Labels)) {
				rules = append(rules, other.Rules...)
			}
		}
	}
	r.rules[types.NamespacedName{Name: role.Name}] = rules
	return nil
}

// mayUse reports whether a user has the verb use on constraints in a namespace.
func (r *fileRBAC) mayUse(who attributes.Requester, constraint, namespace string) bool {
	for _, binding := range r.bindings {
		if binding.namespace != "" && binding.namespace != namespace || !binding.binds(who) {
			continue
		}
		role := types.NamespacedName{Name: binding.role.Name}
		if binding.role.Kind == v1alpha1.RoleKind {
			role.Namespace = binding.namespace
		}
		grants := func(rule rbacv1.PolicyRule) bool { return grantsUse(rule, constraint) }
		if slices.ContainsFunc(r.rules[role], grants) {
			return true
		}
	}
	return false
}

func (b fileBinding) binds(who attributes.Requester) bool {
	return slices.ContainsFunc(b.subjects, func(bound rbacv1.Subject) bool {
		subject, isValid := attributes.SubjectOf(bound, b.namespace)
		return isValid && who.Is(subject)
	})
}
