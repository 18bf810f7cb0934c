package hierarchy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// rootOnly are the kinds that are cluster-level policies.
var rootOnly = []string{kindClusterRole, kindClusterRoleBinding, kindPodSecurityPolicy}

// check holds a directory and all in it against the constraints.
func (l *loader) check(d *Directory) {
	if slices.ContainsFunc(d.objects, func(o Object) bool { return o.kind == kindNamespace }) {
		l.checkNamespace(d)
	} else {
		l.checkPolicyspace(d)
	}
	seen := map[string]Object{}
	for _, object := range d.objects {
		if slices.Contains(rootOnly, object.kind) && d.Parent != nil {
			l.violate("root-only", object.Path, object.Line, fmt.Sprintf("%s %s is a cluster-level policy", object.kind, object.name),
				"move it immediately into "+l.root)
		}
		key := object.kind + " " + object.name
		if before, twice := seen[key]; twice && object.name != "" {
			l.violate("dup-name", object.Path, object.Line, fmt.Sprintf("%s is in the directory already, in %s line %d", key, before.Path, before.Line),
				"give it another name or leave one out")
			continue
		}
		seen[key] = object
	}
	quotas := 0
	for _, object := range d.objects {
		if object.kind != kindResourceQuota {
			continue
		}
		if quotas++; quotas > 1 {
			l.violate("multi-quota", object.Path, object.Line, fmt.Sprintf("ResourceQuota %s is not the only one of the directory", object.name),
				"make one of them")
		}
	}
	for _, child := range d.Children {
		l.check(child)
	}
}

func (l *loader) checkNamespace(d *Directory) {
	for _, child := range d.Children {
		l.violate("ns-leaf", child.Path, 0, fmt.Sprintf("directory %s is in %s, which is a namespace directory", child.Name, d.Name),
			"move it out, or the Namespace into a directory of its own")
	}
	for _, object := range d.objects {
		switch {
		case object.kind == kindNamespace && object.name != d.Name:
			l.violate("ns-name-match", object.Path, object.lines.of("metadata", "name"),
				fmt.Sprintf("Namespace %s is in directory %s", object.name, d.Name), "give both the same name")
		case object.kind == kindNamespace, slices.Contains(rootOnly, object.kind):
		case !slices.Contains([]string{kindRole, kindRoleBinding, kindResourceQuota}, object.kind):
			l.violate("ns-kind", object.Path, object.Line, fmt.Sprintf("%s %s can't be in a namespace directory", object.kind, object.name),
				"keep Namespace, Role, RoleBinding and ResourceQuota there, and the rest elsewhere")
		case object.namespace != "" && object.namespace != d.Name:
			l.violate("ns-name-match", object.Path, object.lines.of("metadata", "namespace"),
				fmt.Sprintf("%s %s says namespace %s in directory %s", object.kind, object.name, object.namespace, d.Name),
				"leave metadata.namespace out, or write the directory's name")
		}
	}
}

func (l *loader) checkPolicyspace(d *Directory) {
	for _, object := range d.objects {
		if quota, ok := object.Object.(*corev1.ResourceQuota); ok && (len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil) {
			l.violate("ps-quota-scopes", object.Path, object.lines.of("spec", "scopes"), fmt.Sprintf("ResourceQuota %s of a policyspace has scopes, which only a namespace's can have", object.name),
				"leave out scopes and scopeSelector")
		}
		switch {
		case object.kind == kindRole:
			l.violate("ps-role", object.Path, object.Line, fmt.Sprintf("Role %s is in a policyspace directory", object.name),
				"make it a ClusterRole in "+l.root+", or move it into a namespace")
		case slices.Contains(rootOnly, object.kind):
		case object.kind != kindRoleBinding && object.kind != kindResourceQuota:
			l.violate("ps-kind", object.Path, object.Line, fmt.Sprintf("%s %s can't be in a policyspace directory", object.kind, object.name),
				"keep RoleBinding and ResourceQuota there, and the rest elsewhere")
		case object.namespace != "":
			l.violate("ps-namespace-field", object.Path, object.lines.of("metadata", "namespace"),
				fmt.Sprintf("%s %s says namespace %s in a policyspace, which has many", object.kind, object.name, object.namespace),
				"leave metadata.namespace out")
		}
	}
}

// checkNames holds the names of all directories against the constraints on names.
func (l *loader) checkNames(root *Directory) {
	first := map[string]string{}
	var visit func(*Directory)
	visit = func(d *Directory) {
		if reasons := validation.IsDNS1123Label(d.Name); len(reasons) > 0 {
			l.violate("name-dns", d.Path, 0, fmt.Sprintf("%q can't be the name of a namespace or policyspace", d.Name),
				"use at most 63 lower-case letters, digits and '-', with a letter or digit at both ends")
		}
		if reserved(d.Name) {
			l.violate("name-reserved", d.Path, 0, fmt.Sprintf("the name %s is reserved", d.Name),
				"choose one that is not default, nomos-system or "+v1alpha1.OperatorNamespace+", and that does not begin with kube-")
		}
		if before, taken := first[d.Name]; taken {
			l.violate("name-unique", d.Path, 0, fmt.Sprintf("the name %s is that of %s too", d.Name, before), "give one of them another name")
		} else {
			first[d.Name] = d.Path
		}
		for _, child := range d.Children {
			visit(child)
		}
	}
	visit(root)
}

func reserved(name string) bool {
	return name == "default" || name == "nomos-system" || name == v1alpha1.OperatorNamespace || strings.HasPrefix(name, "kube-")
}

// checkName refuses names that the API server would.
func (l *loader) checkName(o Object) {
	var reasons []string
	switch o.Object.(type) {
	case *corev1.Namespace:
		reasons = validation.IsDNS1123Label(o.name)
	case *corev1.ResourceQuota:
		reasons = validation.IsDNS1123Subdomain(o.name)
	default:
		reasons = content.IsPathSegmentName(o.name)
	}
	switch {
	case o.name == "":
		l.violate("schema", o.Path, o.lines.of("metadata"), o.kind+" has no metadata.name", "give it one")
	case len(reasons) > 0:
		l.violate("schema", o.Path, o.lines.of("metadata", "name"), fmt.Sprintf("%s can't be called %q: %s", o.kind, o.name, strings.Join(reasons, "; ")), "choose another name")
	}
}

// checkSchema refuses what the API server would, beyond the fields that it knows.
func (l *loader) checkSchema(o Object) {
	l.checkName(o)
	complain := func(field, format string, args ...any) {
		l.violate("schema", o.Path, o.lines.of(strings.Split(field, ".")...), fmt.Sprintf("%s %s: %s", o.kind, o.name, fmt.Sprintf(format, args...)), "mend the field")
	}
	switch typed := o.Object.(type) {
	case *corev1.Namespace:
		for _, key := range slices.Sorted(maps.Keys(typed.Labels)) {
			if key == v1alpha1.PolicySpaceLabel || strings.HasSuffix(key, v1alpha1.DepthLabelSuffix) {
				l.violate("ns-label", o.Path, o.lines.of("metadata", "labels", key), fmt.Sprintf("Namespace %s has the label %s, which says where it is in the tree", o.name, key),
					"leave it out: the directory says it")
			}
		}
	case *rbacv1.RoleBinding:
		checkBinding(typed.RoleRef, typed.Subjects, true, complain)
	case *rbacv1.ClusterRoleBinding:
		checkBinding(typed.RoleRef, typed.Subjects, false, complain)
		l.checkClusterLevel(o)
	case *rbacv1.Role:
		l.checkRules(o, typed.Rules, true, complain)
	case *rbacv1.ClusterRole:
		l.checkRules(o, typed.Rules, false, complain)
		l.checkClusterLevel(o)
	case *corev1.ResourceQuota:
		for _, name := range slices.Sorted(maps.Keys(typed.Spec.Hard)) {
			if wrong := checkQuota(name, typed.Spec.Hard); wrong != "" {
				complain("spec.hard", "%s %s", name, wrong)
			}
		}
	}
}

// checkClusterLevel refuses a namespace on what is in none, and warns of what is Kubernetes' own.
func (l *loader) checkClusterLevel(o Object) {
	if o.namespace != "" {
		l.violate("schema", o.Path, o.lines.of("metadata", "namespace"), fmt.Sprintf("%s %s is in no namespace", o.kind, o.name), "leave metadata.namespace out")
	}
	if strings.HasPrefix(o.name, "system:") || slices.Contains([]string{"admin", "cluster-admin", "edit", "view"}, o.name) {
		l.warn(o.Path, o.Line, fmt.Sprintf("%s %s is Kubernetes' own: the tree would overwrite it", o.kind, o.name))
	}
}

func checkBinding(ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool, complain func(field, format string, args ...any)) {
	if ref.APIGroup != rbacv1.GroupName && ref.APIGroup != "" {
		complain("roleRef.apiGroup", "roleRef.apiGroup is %q: it must be %s", ref.APIGroup, rbacv1.GroupName)
	}
	if ref.Kind != kindClusterRole && (!namespaced || ref.Kind != kindRole) {
		complain("roleRef.kind", "roleRef.kind is %q: it must be a role's", ref.Kind)
	}
	if reasons := content.IsPathSegmentName(ref.Name); ref.Name == "" || len(reasons) > 0 {
		complain("roleRef.name", "roleRef.name is %q, which no role is called", ref.Name)
	}
	for i, subject := range subjects {
		switch {
		case subject.Name == "":
			complain("subjects", "subjects[%d] has no name", i)
		case subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace == "":
			complain("subjects", "subjects[%d]: ServiceAccount %s has no namespace", i, subject.Name)
		case subject.Kind == rbacv1.ServiceAccountKind && subject.APIGroup != "":
			complain("subjects", "subjects[%d]: the apiGroup of a ServiceAccount is empty", i)
		case subject.Kind == rbacv1.ServiceAccountKind:
		case subject.Kind != rbacv1.UserKind && subject.Kind != rbacv1.GroupKind:
			complain("subjects", "subjects[%d].kind is %q: it can be User, Group or ServiceAccount", i, subject.Kind)
		case subject.APIGroup != "" && subject.APIGroup != rbacv1.GroupName:
			complain("subjects", "subjects[%d].apiGroup is %q: it must be %s", i, subject.APIGroup, rbacv1.GroupName)
		}
	}
}

func (l *loader) checkRules(o Object, rules []rbacv1.PolicyRule, namespaced bool, complain func(field, format string, args ...any)) {
	for i, rule := range rules {
		switch {
		case len(rule.Verbs) == 0:
			complain("rules", "rules[%d] has no verbs", i)
		case len(rule.NonResourceURLs) > 0 && (namespaced || len(rule.Resources)+len(rule.APIGroups)+len(rule.ResourceNames) > 0):
			complain("rules", "rules[%d] has nonResourceURLs, which go with nothing else and in no Role", i)
		case len(rule.NonResourceURLs) == 0 && (len(rule.APIGroups) == 0 || len(rule.Resources) == 0):
			complain("rules", "rules[%d] has no apiGroups or no resources", i)
		}
		for _, group := range rule.APIGroups {
			if strings.Contains(group, "/") {
				l.warn(o.Path, o.lines.of("rules"), fmt.Sprintf("%s %s: %q is no API group but a group and a version, so that the rule grants nothing", o.kind, o.name, group))
			}
		}
	}
}
