package hierarchy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// rootOnly are the kinds that are cluster-level policies.
var rootOnly = []string{kindClusterRole, kindClusterRoleBinding, kindPodSecurityPolicy}

// check holds a directory and all in it against the constraints.
func (l *loader) check(d *Directory) {
	isNamespace := slices.ContainsFunc(d.objects, func(o Object) bool { return o.kind == kindNamespace })
	if isNamespace {
		l.checkNamespace(d)
	} else {
		l.checkPolicyspace(d)
	}
	seen := map[string]Object{}
	for _, object := range d.objects {
		if slices.Contains(rootOnly, object.kind) && (isNamespace || d.Parent != nil) {
			l.violate("root-only", object.Path, object.Line, object.called()+" is a cluster-level policy",
				"move it immediately into "+l.root+", which is then a policyspace")
		}
		key := object.kind + " " + object.name
		if before, twice := seen[key]; twice && object.name != "" {
			l.violate("dup-name", object.Path, object.Line,
				fmt.Sprintf("%s is in the directory already, in %s line %d", key, before.Path, before.Line),
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
			l.violate("multi-quota", object.Path, object.Line,
				fmt.Sprintf("ResourceQuota %s is not the only one of the directory", object.name),
				"make one of them")
		}
	}
	for _, child := range d.Children {
		l.check(child)
	}
}

func (l *loader) checkNamespace(d *Directory) {
	for _, child := range d.Children {
		l.violate("ns-leaf", child.Path, 0,
			fmt.Sprintf("directory %s is in %s, which is a namespace directory", child.Name, d.Name),
			"move it out, or the Namespace into a directory of its own")
	}
	for _, object := range d.objects {
		switch {
		case object.kind == kindNamespace && object.name != d.Name && object.name != "":
			l.violate("ns-name-match", object.Path, object.lines.of("metadata", "name"),
				fmt.Sprintf("Namespace %s is in directory %s", object.name, d.Name), "give both the same name")
		case object.kind == kindNamespace, slices.Contains(rootOnly, object.kind):
		case !slices.Contains([]string{kindRole, kindRoleBinding, kindResourceQuota}, object.kind):
			l.violate("ns-kind", object.Path, object.Line, object.called()+" can't be in a namespace directory",
				"keep Namespace, Role, RoleBinding and ResourceQuota there, and the rest elsewhere")
		case object.namespace != "" && object.namespace != d.Name:
			l.violate("ns-name-match", object.Path, object.lines.of("metadata", "namespace"),
				fmt.Sprintf("%s says namespace %s in directory %s", object.called(), object.namespace, d.Name),
				"leave metadata.namespace out, or write the directory's name")
		case object.kind == kindResourceQuota && object.name == v1alpha1.QuotaName:
			l.violate("name-reserved", object.Path, object.lines.of("metadata", "name"),
				object.called()+" is what the operator counts by", "give it another name")
		}
	}
}

func (l *loader) checkPolicyspace(d *Directory) {
	for _, object := range d.objects {
		if quota, ok := object.Object.(*corev1.ResourceQuota); ok &&
			(len(quota.Spec.Scopes) > 0 || quota.Spec.ScopeSelector != nil) {
			l.violate("ps-quota-scopes", object.Path, object.lines.of("spec", "scopes"),
				fmt.Sprintf("ResourceQuota %s of a policyspace has scopes, which only a namespace's can have",
					object.name),
				"leave out scopes and scopeSelector")
		}
		switch {
		case object.kind == kindRole:
			l.violate("ps-role", object.Path, object.Line, object.called()+" is in a policyspace directory",
				"make it a ClusterRole in "+l.root+", or move it into a namespace")
		case slices.Contains(rootOnly, object.kind):
		case object.kind != kindRoleBinding && object.kind != kindResourceQuota:
			l.violate("ps-kind", object.Path, object.Line, object.called()+" can't be in a policyspace directory",
				"keep RoleBinding and ResourceQuota there, and the rest elsewhere")
		case object.namespace != "":
			l.violate("ps-namespace-field", object.Path, object.lines.of("metadata", "namespace"),
				fmt.Sprintf("%s says namespace %s in a policyspace, which has many", object.called(), object.namespace),
				"leave metadata.namespace out")
		}
	}
}

const dnsRemedy = "use at most 63 lower-case letters, digits and '-', with a letter or digit at both ends"

// checkNames holds the names of all directories against the constraints on names.
func (l *loader) checkNames(root *Directory) {
	first := map[string]string{}
	var visit func(*Directory)
	visit = func(d *Directory) {
		if reasons := validation.IsDNS1123Label(d.Name); len(reasons) > 0 {
			l.violate("name-dns", d.Path, 0, fmt.Sprintf("%q can't be the name of a namespace or policyspace", d.Name),
				dnsRemedy)
		}
		if reserved(d.Name) {
			l.violate("name-reserved", d.Path, 0, fmt.Sprintf("the name %s is reserved", d.Name),
				"choose one that is not default, nomos-system or "+v1alpha1.OperatorNamespace+", and that does not begin with kube-")
		}
		if before, taken := first[d.Name]; taken {
			l.violate("name-unique", d.Path, 0, fmt.Sprintf("the name %s is that of %s too", d.Name, before),
				"give one of them another name")
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
	return name == "default" || name == "nomos-system" || name == v1alpha1.OperatorNamespace ||
		strings.HasPrefix(name, "kube-")
}

// checkName refuses names that the API server would, and tells whether it did not.
func (l *loader) checkName(o Object) bool {
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
		l.violate("schema", o.Path, o.lines.of("metadata", "name"),
			fmt.Sprintf("%s can't be called %q: %s", o.kind, o.name, strings.Join(reasons, "; ")),
			"choose another name")
	}
	return len(reasons) == 0
}

// checkSchema refuses what the API server would, beyond the fields that it knows.
func (l *loader) checkSchema(o Object) {
	nameable := l.checkName(o)
	complain := func(field, format string, args ...any) {
		l.violate("schema", o.Path, o.lines.of(steps(field)...), o.called()+": "+fmt.Sprintf(format, args...),
			"mend the field")
	}
	switch typed := o.Object.(type) {
	case *corev1.Namespace:
		for _, key := range slices.Sorted(maps.Keys(typed.Labels)) {
			if key == v1alpha1.PolicySpaceLabel || strings.HasSuffix(key, v1alpha1.DepthLabelSuffix) {
				l.violate("ns-label", o.Path, o.lines.of("metadata", "labels", key),
					fmt.Sprintf("Namespace %s has the label %s, which says where it is in the tree", o.name, key),
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
				l.violate("schema", o.Path, o.lines.of("spec", "hard", string(name)),
					fmt.Sprintf("%s: %s %s", o.called(), name, wrong), "mend the limit or leave it out")
			}
		}
	}
	if nameable {
		l.checkLimits(o)
	}
}

// checkLimits refuses, of an object whose name is none to refuse, labels and annotations that the API server or
// kustomize, by which the object gets into namespaces, would.
func (l *loader) checkLimits(o Object) {
	fields, err := toFields(o.Object)
	if err != nil {
		l.violate("schema", o.Path, o.Line, o.called()+": "+err.Error(), "mend the object")
		return
	}
	escaped, _ := render.Escaped(fields).(map[string]any)
	object := &unstructured.Unstructured{Object: escaped}
	problems := render.CheckLimits(object)
	if err := errors.Join(render.CheckLabels(object.GetLabels()),
		render.CheckAnnotations(object.GetAnnotations())); err != nil &&
		slices.Contains([]string{kindRole, kindRoleBinding, kindResourceQuota}, o.kind) {
		problems = append(problems, fmt.Errorf("%s: %w", o.called(), err))
	}
	for _, problem := range problems {
		at := "metadata"
		if wrong, ok := errors.AsType[*field.Error](problem); ok {
			at = wrong.Field
		}
		l.violate("schema", o.Path, o.lines.of(steps(at)...), problem.Error(), "mend it or leave it out")
	}
}

// disown leaves out what the API server writes and no file says, as it comes with kubectl get, and tells whether there
// was any.
func (l *loader) disown(o Object) bool {
	meta := o.Object.(metav1.Object)
	annotations := maps.Clone(meta.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	kept := metav1.ObjectMeta{
		Name: meta.GetName(), Namespace: meta.GetNamespace(), Labels: meta.GetLabels(), Annotations: annotations,
		Finalizers: meta.GetFinalizers(),
	}
	var before metav1.ObjectMeta
	switch typed := o.Object.(type) {
	case *corev1.Namespace:
		before, typed.ObjectMeta, typed.Status = typed.ObjectMeta, kept, corev1.NamespaceStatus{}
	case *corev1.ResourceQuota:
		before, typed.ObjectMeta, typed.Status = typed.ObjectMeta, kept, corev1.ResourceQuotaStatus{}
	case *rbacv1.Role:
		before, typed.ObjectMeta = typed.ObjectMeta, kept
	case *rbacv1.RoleBinding:
		before, typed.ObjectMeta = typed.ObjectMeta, kept
	case *rbacv1.ClusterRole:
		before, typed.ObjectMeta = typed.ObjectMeta, kept
	case *rbacv1.ClusterRoleBinding:
		before, typed.ObjectMeta = typed.ObjectMeta, kept
	}
	if equality.Semantic.DeepEqual(before, kept) {
		return false
	}
	l.warn(o.Path, o.lines.of("metadata"),
		o.called()+" has fields of the API server, such as uid and resourceVersion: they are left out")
	return true
}

// What templates are bounded by, in bytes: an annotation of kubectl apply has the whole object, and etcd stores no
// larger one.
const (
	maxApplied = 200_000
	maxStored  = 1_200_000
)

// checkSizes says what becomes too large as it is compiled: all policies of a directory are one template.
func (l *loader) checkSizes(d *Directory) {
	size := 0
	isNamespace := slices.ContainsFunc(d.objects, func(o Object) bool { return o.kind == kindNamespace })
	for _, object := range d.objects {
		if object.kind == kindRole || object.kind == kindRoleBinding || object.kind == kindResourceQuota &&
			isNamespace {
			size += object.size
		}
	}
	switch {
	case size > maxStored:
		l.violate("size", d.Path, 0,
			fmt.Sprintf("its policies have %d bytes together, and a template can have %d", size, maxStored),
			"have fewer in one directory")
	case size > maxApplied:
		l.warn(d.Path, 0,
			fmt.Sprintf("its policies have %d bytes together: what hydrate prints takes kubectl apply --server-side",
				size))
	}
	for _, child := range d.Children {
		l.checkSizes(child)
	}
}

// checkClusterLevel refuses a namespace on what is in none, and warns of what is Kubernetes' own.
func (l *loader) checkClusterLevel(o Object) {
	if o.namespace != "" {
		l.violate("schema", o.Path, o.lines.of("metadata", "namespace"), o.called()+" is in no namespace",
			"leave metadata.namespace out")
	}
	if strings.HasPrefix(o.name, "system:") ||
		slices.Contains([]string{"admin", "cluster-admin", "edit", "view"}, o.name) {
		l.warn(o.Path, o.Line, o.called()+" is Kubernetes' own: the tree would overwrite it")
	}
}

func checkBinding(
	ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool, complain func(field, format string, args ...any),
) {
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
			complain(fmt.Sprintf("subjects[%d]", i), "subjects[%d] has no name", i)
		case subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace == "":
			complain(fmt.Sprintf("subjects[%d]", i), "subjects[%d]: ServiceAccount %s has no namespace", i,
				subject.Name)
		case subject.Kind == rbacv1.ServiceAccountKind && subject.APIGroup != "":
			complain(fmt.Sprintf("subjects[%d]", i), "subjects[%d]: the apiGroup of a ServiceAccount is empty", i)
		case subject.Kind == rbacv1.ServiceAccountKind:
		case subject.Kind != rbacv1.UserKind && subject.Kind != rbacv1.GroupKind:
			complain(fmt.Sprintf("subjects[%d]", i), "subjects[%d].kind is %q: it can be User, Group or ServiceAccount",
				i, subject.Kind)
		case subject.APIGroup != "" && subject.APIGroup != rbacv1.GroupName:
			complain(fmt.Sprintf("subjects[%d]", i), "subjects[%d].apiGroup is %q: it must be %s", i, subject.APIGroup,
				rbacv1.GroupName)
		}
	}
}

func (l *loader) checkRules(
	o Object, rules []rbacv1.PolicyRule, namespaced bool, complain func(field, format string, args ...any),
) {
	for i, rule := range rules {
		switch {
		case len(rule.Verbs) == 0:
			complain(fmt.Sprintf("rules[%d]", i), "rules[%d] has no verbs", i)
		case len(rule.NonResourceURLs) > 0 &&
			(namespaced || len(rule.Resources)+len(rule.APIGroups)+len(rule.ResourceNames) > 0):
			complain(fmt.Sprintf("rules[%d]", i),
				"rules[%d] has nonResourceURLs, which go with nothing else and in no Role", i)
		case len(rule.NonResourceURLs) == 0 && (len(rule.APIGroups) == 0 || len(rule.Resources) == 0):
			complain(fmt.Sprintf("rules[%d]", i), "rules[%d] has no apiGroups or no resources", i)
		}
		for _, group := range rule.APIGroups {
			if strings.Contains(group, "/") {
				l.warn(o.Path, o.lines.of("rules", strconv.Itoa(i)),
					fmt.Sprintf("%s %s: %q is no API group but a group and a version, so that the rule grants nothing",
						o.kind, o.name, group))
			}
		}
	}
}
