// Package escalation judges a recorded history of writes: whether the operator granted, wrote or deleted something for
// which no author of the responsible NamespaceTemplate had the rights. It takes values and returns values; the
// recording is done by test/integration.
package escalation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Author is a user who writes NamespaceTemplates.
type Author struct {
	Name string `json:"name"`
	// Rules are what the user may do in all namespaces.
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// Administrator returns an author who may do everything.
func Administrator(name string) Author {
	return Author{
		Name:  name,
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
	}
}

// Holds reports whether the author may do everything that the rules allow.
func (a Author) Holds(rules []rbacv1.PolicyRule) bool {
	held, _ := validation.Covers(a.Rules, rules)
	return held
}

// may reports whether the author may do something with an object of a name. An empty name is every name.
func (a Author) may(verb, group, resource, name string) bool {
	rule := rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}}
	if name != "" {
		rule.ResourceNames = []string{name}
	}
	return a.Holds([]rbacv1.PolicyRule{rule})
}

// mayDeclare reports whether the author could write a Role with the rules.
func (a Author) mayDeclare(role string, rules []rbacv1.PolicyRule) bool {
	return a.Holds(rules) || a.may("escalate", rbacv1.GroupName, "roles", role)
}

// mayBind reports whether the author could bind a role. A role that does not exist takes the verb bind.
func (a Author) mayBind(ref rbacv1.RoleRef, rules []rbacv1.PolicyRule, exists bool) bool {
	resource := "roles"
	if ref.Kind == "ClusterRole" {
		resource = "clusterroles"
	}
	return exists && a.Holds(rules) || a.may("bind", rbacv1.GroupName, resource, ref.Name)
}

// mayPatchTemplate reports whether the author could change a NamespaceTemplate.
func (a Author) mayPatchTemplate(name string) bool {
	return a.may("patch", v1alpha1.GroupVersion.Group, "namespacetemplates", name)
}
