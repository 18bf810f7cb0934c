package report

import (
	"cmp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
)

// permission is a permission of RBAC that the report shows.
type permission struct {
	group, resource string
	// verbs are the verbs of which each one gives the permission, and title names it.
	verbs []string
	title string
	// namespaced permissions can also be granted in a namespace.
	namespaced bool
}

// permissions are the permissions by which users change, use or bypass policies.
func permissions() []permission {
	group, writes := v1alpha1.GroupVersion.Group, []string{"create", "update", "patch", "delete", "deletecollection"}
	templates, spaces := v1alpha1.NamespaceTemplates.Resource, v1alpha1.PolicySpaces.Resource
	constraints := v1alpha1.SecurityContextConstraintses.Resource
	return []permission{
		{group, templates, writes, "change templates", false},
		{group, spaces, writes, "change policy spaces", false},
		{group, v1alpha1.PolicyRepositories.Resource, writes, "change policy repositories", false},
		{group, templates, []string{v1alpha1.VerbUse}, "use templates", false},
		{group, templates, []string{v1alpha1.VerbOptOut}, "opt namespaces out", false},
		{group, templates, []string{v1alpha1.VerbExempt}, "exempt namespaces from templates", false},
		{group, templates, []string{v1alpha1.VerbSetCreator}, "set the creator of namespaces", false},
		{group, spaces, []string{v1alpha1.VerbUse}, "place namespaces in policy spaces", false},
		{corev1.GroupName, "namespaces", []string{v1alpha1.VerbInitialize}, "write into held namespaces", false},
		{group, constraints, []string{v1alpha1.VerbUse}, "use security context constraints", true},
	}
}

// rights returns who has which permission: by roles, by rules on attributes, and as a user or group of constraints.
func rights(x contents) []Right {
	all := []Right{}
	for _, role := range x.clusterRoles {
		ref := v1alpha1.RoleReference{APIGroup: rbacv1.GroupName, Kind: v1alpha1.ClusterRoleKind, Name: role.Name}
		all = append(all, rightsOf(role.Rules, "clusterrole/"+role.Name, func(p permission) []Holder {
			return holders(x.bound[ref], func(in string) bool { return in == "" || p.namespaced })
		})...)
	}
	for _, role := range x.roles {
		ref := v1alpha1.RoleReference{APIGroup: rbacv1.GroupName, Kind: v1alpha1.RoleKind, Name: role.Name}
		all = append(all, rightsOf(role.Rules, "role/"+role.Namespace+"/"+role.Name, func(p permission) []Holder {
			return holders(x.bound[ref], func(in string) bool { return p.namespaced && in == role.Namespace })
		})...)
	}
	for i := range x.clusterRules {
		all = append(all, ruleRight(x.clusterRules[i].AttributeRule, "", x.bound))
	}
	for i := range x.rules {
		all = append(all, ruleRight(x.rules[i].AttributeRule, x.rules[i].Namespace, x.bound))
	}
	for _, constraint := range x.constraints {
		if right := constraintRight(constraint); len(right.Subjects) > 0 {
			all = append(all, right)
		}
	}
	slices.SortStableFunc(all, func(a, b Right) int { return strings.Compare(a.What, b.What) })
	return all
}

// rightsOf returns the permissions that the rules of a role grant to subjects. A role that grants everything is one
// right.
func rightsOf(rules []rbacv1.PolicyRule, role string, subjects func(permission) []Holder) []Right {
	if slices.ContainsFunc(rules, grantsAll) {
		if all := subjects(permission{namespaced: true}); len(all) > 0 {
			return []Right{{What: "everything", Role: role, Subjects: all}}
		}
		return nil
	}
	var rights []Right
	for _, p := range permissions() {
		names, granted := grants(rules, p)
		if !granted {
			continue
		}
		if all := subjects(p); len(all) > 0 {
			rights = append(rights, Right{What: p.title, Names: names, Role: role, Subjects: all})
		}
	}
	return rights
}

func grantsAll(rule rbacv1.PolicyRule) bool {
	return slices.Contains(rule.Verbs, rbacv1.VerbAll) && slices.Contains(rule.APIGroups, rbacv1.APIGroupAll) &&
		slices.Contains(rule.Resources, rbacv1.ResourceAll) && len(rule.ResourceNames) == 0
}

// grants returns the names of the objects for which rules grant a permission. The names are empty if it is for all.
func grants(rules []rbacv1.PolicyRule, p permission) (names []string, granted bool) {
	has := func(values []string, value string) bool {
		return slices.Contains(values, value) || slices.Contains(values, "*")
	}
	all := false
	for _, rule := range rules {
		hasVerb := slices.ContainsFunc(p.verbs, func(verb string) bool { return has(rule.Verbs, verb) })
		if !hasVerb || !has(rule.APIGroups, p.group) || !has(rule.Resources, p.resource) {
			continue
		}
		granted, all = true, all || len(rule.ResourceNames) == 0
		names = append(names, rule.ResourceNames...)
	}
	if all {
		return nil, true
	}
	slices.Sort(names)
	return slices.Compact(names), granted
}

// holders returns the subjects of those bindings that count, each once. counts gets the namespace of a binding, which
// is empty for a ClusterRoleBinding.
func holders(bound []cluster.BoundSubject, counts func(namespace string) bool) []Holder {
	all := []Holder{}
	type identity struct{ kind, namespace, name string }
	positions := map[identity]int{}
	for _, b := range bound {
		if !counts(b.Namespace) {
			continue
		}
		id := identity{b.Subject.Kind, b.Subject.Namespace, b.Subject.Name}
		i, known := positions[id]
		if !known {
			i = len(all)
			positions[id] = i
			all = append(all, Holder{Kind: id.kind, Namespace: id.namespace, Name: id.name})
			if b.Namespace != "" {
				all[i].In = []string{b.Namespace}
			}
			continue
		}
		// Bindings to the whole cluster come first.
		if len(all[i].In) > 0 && !slices.Contains(all[i].In, b.Namespace) {
			all[i].In = append(all[i].In, b.Namespace)
		}
	}
	return all
}

// ruleRight returns who may set an attribute by a rule, which is in a namespace unless that is empty.
func ruleRight(rule v1alpha1.AttributeRule, namespace string, bound cluster.BoundSubjects) Right {
	what := "set " + strings.ToLower(string(rule.AttributeKind)) + " " + rule.AttributeName
	if namespace != "" {
		what += " in " + namespace
	}
	ref := rule.RoleRef
	ref.APIGroup = cmp.Or(ref.APIGroup, rbacv1.GroupName)
	return Right{
		What: what, Names: rule.ProtectedValues, Role: strings.ToLower(ref.Kind) + "/" + ref.Name,
		Subjects: holders(bound[ref], func(in string) bool { return in == "" || namespace == "" || in == namespace }),
	}
}

// constraintRight returns the users and groups that constraints list.
func constraintRight(constraint *v1alpha1.SecurityContextConstraints) Right {
	right := Right{
		What: "use security context constraints", Names: []string{constraint.Name},
		Role: "users and groups of the constraints",
	}
	for _, user := range constraint.Users {
		right.Subjects = append(right.Subjects, Holder{Kind: rbacv1.UserKind, Name: user})
	}
	for _, group := range constraint.Groups {
		right.Subjects = append(right.Subjects, Holder{Kind: rbacv1.GroupKind, Name: group})
	}
	return right
}
