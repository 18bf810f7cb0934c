// Package escalation checks a recorded history of writes for escalations: permissions that the operator granted, or
// objects that it wrote or deleted, which no author of the responsible NamespaceTemplate could have granted, written or
// deleted directly. It works on values; test/integration records the history.
package escalation

import (
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/component-helpers/auth/rbac/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Author is a user who writes NamespaceTemplates.
type Author struct {
	Name string `json:"name"`
	// Rules are the user's permissions in all namespaces.
	Rules []rbacv1.PolicyRule `json:"rules"`
}

// Administrator returns an author who has all permissions.
func Administrator(name string) Author {
	return Author{
		Name:  name,
		Rules: []rbacv1.PolicyRule{{Verbs: []string{"*"}, APIGroups: []string{"*"}, Resources: []string{"*"}}},
	}
}

// Holds reports whether the author has all permissions of the rules.
func (a Author) Holds(rules []rbacv1.PolicyRule) bool {
	held, _ := validation.Covers(a.Rules, rules)
	return held
}

// may reports whether the author has a verb on the object of a name. An empty name stands for every name.
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

// mayBind reports whether the author could bind a role. Binding a role that does not exist needs the verb bind.
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
