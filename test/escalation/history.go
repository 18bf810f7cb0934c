package escalation

import (
	"maps"
	"reflect"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Record is one write: an object as it was stored, or its last state if it was deleted.
type Record struct {
	// Revision orders records of all kinds: the API server takes resource versions from one sequence.
	Revision uint64
	Object   *unstructured.Unstructured
	Deleted  bool
	// Writer is the user who made the write. It is empty for the operator.
	Writer string
}

func (r Record) key() key { return keyOf(r.Object) }

// key identifies an object.
type key struct{ group, kind, namespace, name string }

func keyOf(object *unstructured.Unstructured) key {
	kind := object.GroupVersionKind()
	return key{kind.Group, kind.Kind, object.GetNamespace(), object.GetName()}
}

func roleKey(namespace, name string) key { return key{rbacv1.GroupName, "Role", namespace, name} }

// state is what is stored at one revision.
type state struct {
	objects      map[key]Record
	clusterRoles map[string][]rbacv1.PolicyRule
}

func (s state) set(r Record) {
	if r.Deleted {
		delete(s.objects, r.key())
		return
	}
	s.objects[r.key()] = r
}

// rules returns the rules of a role, and whether the role exists.
func (s state) rules(namespace string, ref rbacv1.RoleRef) ([]rbacv1.PolicyRule, bool) {
	if ref.Kind == "ClusterRole" {
		rules, exists := s.clusterRoles[ref.Name]
		return rules, exists
	}
	stored, exists := s.objects[roleKey(namespace, ref.Name)]
	return rulesOf(stored.Object), exists
}

// bindings returns the RoleBindings of a namespace in the order of their names.
func (s state) bindings(namespace string) []*rbacv1.RoleBinding {
	found := map[string]*rbacv1.RoleBinding{}
	for id, stored := range s.objects {
		if id.group == rbacv1.GroupName && id.kind == "RoleBinding" && id.namespace == namespace {
			found[id.name] = bindingOf(stored.Object)
		}
	}
	var bindings []*rbacv1.RoleBinding
	for _, name := range slices.Sorted(maps.Keys(found)) {
		bindings = append(bindings, found[name])
	}
	return bindings
}

// granted returns the rules that the RoleBindings of a namespace grant to a subject.
func (s state) granted(namespace string, subject rbacv1.Subject) []rbacv1.PolicyRule {
	var all []rbacv1.PolicyRule
	for _, binding := range s.bindings(namespace) {
		if slices.Contains(binding.Subjects, subject) {
			rules, _ := s.rules(namespace, binding.RoleRef)
			all = append(all, rules...)
		}
	}
	return all
}

// Granted returns the rules that RoleBindings granted to a subject in a namespace at any moment of a history.
func Granted(
	records []Record, clusterRoles map[string][]rbacv1.PolicyRule, namespace string, subject rbacv1.Subject,
) []rbacv1.PolicyRule {
	now := state{map[key]Record{}, clusterRoles}
	var ever []rbacv1.PolicyRule
	for _, record := range sorted(records) {
		now.set(record)
		ever = append(ever, beyond(ever, now.granted(namespace, subject))...)
	}
	return ever
}

func sorted(records []Record) []Record {
	return slices.SortedStableFunc(slices.Values(records), func(a, b Record) int {
		switch {
		case a.Revision < b.Revision:
			return -1
		case a.Revision > b.Revision:
			return 1
		}
		return 0
	})
}

// beyond returns the rules, split into single permissions, that the held ones do not cover.
func beyond(held, rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	_, missing := validation.Covers(held, rules)
	return missing
}

func rulesOf(object *unstructured.Unstructured) []rbacv1.PolicyRule {
	role := &rbacv1.Role{}
	into(object, role)
	return role.Rules
}

func bindingOf(object *unstructured.Unstructured) *rbacv1.RoleBinding {
	binding := &rbacv1.RoleBinding{}
	into(object, binding)
	return binding
}

// into decodes an object of an API server, which is always valid.
func into(object *unstructured.Unstructured, typed any) {
	if object == nil {
		return
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		panic(err)
	}
}

// sameContent reports whether two states of an object are equal in everything that a template could declare.
func sameContent(a, b *unstructured.Unstructured) bool {
	return reflect.DeepEqual(content(a), content(b))
}

func content(object *unstructured.Unstructured) map[string]any {
	copied := object.DeepCopy()
	unstructured.RemoveNestedField(copied.Object, "status")
	annotations := copied.GetAnnotations()
	for _, own := range []string{v1alpha1.HashAnnotation, v1alpha1.AdoptedAnnotation, v1alpha1.UnownedAnnotation} {
		delete(annotations, own)
	}
	labels := copied.GetLabels()
	delete(labels, v1alpha1.TemplateNameLabel)
	maps.DeleteFunc(copied.Object, func(field string, _ any) bool { return field == "metadata" })
	copied.Object["labels"], copied.Object["annotations"] = len(labels), len(annotations)
	for name, value := range labels {
		copied.Object["label "+name] = value
	}
	for name, value := range annotations {
		copied.Object["annotation "+name] = value
	}
	return copied.Object
}
