package hierarchy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/manifest"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/engine/schema"
)

// checkName reports a name that the API server would reject. It returns whether the name is valid.
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
		l.violate("schema", o.Path, l.line(o.lines, "metadata"), o.kind+" has no metadata.name", "add metadata.name")
	case len(reasons) > 0:
		l.violate("schema", o.Path, l.line(o.lines, "metadata", "name"),
			fmt.Sprintf("%s has the invalid name %q: %s", o.kind, o.name, strings.Join(reasons, "; ")),
			"choose another name")
	}
	return len(reasons) == 0
}

// checkSchema reports values that the API server would reject.
func (l *loader) checkSchema(o Object) {
	before := l.violated
	hasValidName := l.checkName(o)
	complain := func(field, format string, args ...any) {
		l.violate("schema", o.Path, l.line(o.lines, manifest.SplitField(field)...),
			o.describe()+": "+fmt.Sprintf(format, args...),
			"correct the field")
	}
	switch typed := o.Object.(type) {
	case *corev1.Namespace:
		for _, key := range slices.Sorted(maps.Keys(typed.Labels)) {
			if isPosition(key) {
				l.violate("ns-label", o.Path, l.line(o.lines, "metadata", "labels", key),
					fmt.Sprintf("Namespace %s has the label %s, which nstpl sets from the directory", o.name, key),
					"remove the label")
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
			if message, remedy := schema.CheckLimit(string(name), typed.Spec.Hard[name]); message != "" {
				l.violate("schema", o.Path, l.line(o.lines, "spec", "hard", string(name)),
					fmt.Sprintf("%s: %s: %s", o.describe(), name, message), cmp.Or(remedy, "correct or remove the limit"))
			}
		}
	}
	if hasValidName {
		l.checkLimits(o, l.violated == before)
	}
}

// isPosition reports whether a label records the position of a Namespace in the tree.
func isPosition(key string) bool {
	return key == v1alpha1.PolicySpaceLabel || strings.HasSuffix(key, v1alpha1.DepthLabelSuffix)
}

// settable are the reserved labels and annotations of Namespaces that users set. Admission asks the account that
// applies the tree for the verbs that some of them need. The others are records of the operator, which nstpl-sync may
// write: with them, a tree could, for example, allocate all user IDs to one namespace. A tree may have its namespaces
// never expire, but neither lets them expire nor consents to their deletion then: deletions by a commit would not count
// for the limit that a person confirms.
var settable = []string{
	v1alpha1.AdoptAnnotation, v1alpha1.CreatorAnnotation, v1alpha1.DeletionProtectionAnnotation,
	v1alpha1.OptOutAnnotation,
	"policy.nstpl.dev/hints", "policy.nstpl.dev/metrics", // labels that the NetworkPolicies select by
}

// withoutSettable returns the reserved labels or annotations of a Namespace that users do not set, except those that
// isPosition reports.
func withoutSettable(metadata map[string]string) map[string]string {
	records := maps.Clone(metadata)
	maps.DeleteFunc(records, func(key, value string) bool {
		return !render.IsReservedKey(key) || isPosition(key) || slices.Contains(settable, key) ||
			key == v1alpha1.ExpiresAnnotation && value == v1alpha1.ExpiresNever
	})
	return records
}

// checkLimits reports what prevents an object with a valid name from being populated: labels and annotations that the
// API server or kustomize would reject, and those that are reserved. The size is checked only if the object is valid
// otherwise, because that needs much memory.
func (l *loader) checkLimits(o Object, isValid bool) {
	fields := o.identifyingFields()
	if o.size > maxSmall && isValid {
		var err error
		if fields, err = toFields(o.Object); err != nil {
			l.violate("schema", o.Path, o.Line, o.describe()+": "+err.Error(), "correct the object")
			return
		}
	}
	escaped, _ := render.Escaped(fields).(map[string]any)
	object := &unstructured.Unstructured{Object: escaped}
	problems := render.CheckLimits(object)
	var metadata []render.Problem
	switch o.kind {
	case kindRole, kindRoleBinding, kindResourceQuota:
		metadata = slices.Concat(render.CheckLabels(object.GetLabels()),
			render.CheckAnnotations(object.GetAnnotations()))
	case kindNamespace:
		metadata = slices.Concat(render.CheckLabels(withoutSettable(object.GetLabels())),
			render.CheckAnnotations(withoutSettable(object.GetAnnotations())),
			render.CheckProtection(object.GetAnnotations()))
	}
	for _, problem := range metadata {
		problem.Path = "metadata." + problem.Path
		problems = append(problems, problem)
	}
	for _, problem := range problems {
		at, message := "metadata", problem.Message
		if problem.Path != "" {
			at, message = problem.Path, problem.Path+" "+problem.Message
		}
		l.violate("schema", o.Path, l.line(o.lines, manifest.SplitField(at)...), o.describe()+": "+message,
			cmp.Or(problem.Remedy, "correct or remove it"))
	}
}

// maxSmall is the size, in bytes, up to which an object certainly fits into the API server's limits. The limits of such
// an object depend on its name, labels and annotations only.
const maxSmall = 32 << 10

// identifyingFields returns the apiVersion, the kind, the name, the labels and the annotations of an object.
func (o Object) identifyingFields() map[string]any {
	typed := o.Object.(metav1.Object)
	fields := &unstructured.Unstructured{Object: map[string]any{}}
	fields.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	fields.SetName(typed.GetName())
	fields.SetLabels(typed.GetLabels())
	fields.SetAnnotations(typed.GetAnnotations())
	return fields.Object
}

// checkClusterLevel reports a metadata.namespace on a cluster-scoped object, and a ClusterRole with the name of a bind
// role, also of another tree. It warns about the roles and bindings of Kubernetes itself.
func (l *loader) checkClusterLevel(o Object) {
	if o.kind == kindClusterRole && IsBindRole(o.name) {
		l.violate("name-reserved", o.Path, l.line(o.lines, "metadata", "name"),
			o.describe()+" has a name that is reserved for ClusterRoles to which trees are compiled", "rename it")
	}
	if o.namespace != "" {
		l.violate("schema", o.Path, l.line(o.lines, "metadata", "namespace"),
			o.describe()+" is cluster-scoped, but has metadata.namespace "+o.namespace,
			"remove metadata.namespace")
	}
	if strings.HasPrefix(o.name, "system:") ||
		slices.Contains([]string{"admin", "cluster-admin", "edit", "view"}, o.name) {
		l.warn(o.Path, o.Line, o.describe()+" belongs to Kubernetes: the tree would overwrite it")
	}
}

// maxBoundName is the size in bytes of the name of a bound ClusterRole at most. Its bind role has a longer name, which
// takes room in the record of nstpl-sync, whose size is limited.
const maxBoundName = 253

func checkBinding(
	ref rbacv1.RoleRef, subjects []rbacv1.Subject, namespaced bool, complain func(field, format string, args ...any),
) {
	if ref.APIGroup != rbacv1.GroupName && ref.APIGroup != "" {
		complain("roleRef.apiGroup", "roleRef.apiGroup is %q: it must be %s", ref.APIGroup, rbacv1.GroupName)
	}
	if ref.Kind != kindClusterRole && (!namespaced || ref.Kind != kindRole) {
		complain("roleRef.kind", "roleRef.kind is %q: it must be ClusterRole or, in a RoleBinding, Role", ref.Kind)
	}
	switch reasons := content.IsPathSegmentName(ref.Name); {
	case ref.Name == "" || len(reasons) > 0:
		complain("roleRef.name", "roleRef.name is %q: it must be the name of a role", ref.Name)
	case namespaced && ref.Kind == kindClusterRole && len(ref.Name) > maxBoundName:
		complain("roleRef.name", "roleRef.name is %q: it must have at most %d bytes", ref.Name, maxBoundName)
	}
	for i, subject := range subjects {
		at := fmt.Sprintf("subjects[%d]", i)
		switch {
		case subject.Name == "":
			complain(at, "%s has no name", at)
		case subject.Kind == rbacv1.ServiceAccountKind && subject.Namespace == "":
			complain(at, "%s: ServiceAccount %s has no namespace", at, subject.Name)
		case subject.Kind == rbacv1.ServiceAccountKind && subject.APIGroup != "":
			complain(at, "%s: the apiGroup of a ServiceAccount must be empty", at)
		case subject.Kind == rbacv1.ServiceAccountKind:
		case subject.Kind != rbacv1.UserKind && subject.Kind != rbacv1.GroupKind:
			complain(at, "%s.kind is %q: it must be User, Group or ServiceAccount", at, subject.Kind)
		case subject.APIGroup != "" && subject.APIGroup != rbacv1.GroupName:
			complain(at, "%s.apiGroup is %q: it must be %s", at, subject.APIGroup, rbacv1.GroupName)
		}
	}
}

func (l *loader) checkRules(
	o Object, rules []rbacv1.PolicyRule, namespaced bool, complain func(field, format string, args ...any),
) {
	for i, rule := range rules {
		at := fmt.Sprintf("rules[%d]", i)
		switch {
		case len(rule.Verbs) == 0:
			complain(at, "%s has no verbs", at)
		case len(rule.NonResourceURLs) > 0 &&
			(namespaced || len(rule.Resources)+len(rule.APIGroups)+len(rule.ResourceNames) > 0):
			complain(at, "%s has nonResourceURLs, which are not allowed in a Role or together with resources", at)
		case len(rule.NonResourceURLs) == 0 && (len(rule.APIGroups) == 0 || len(rule.Resources) == 0):
			complain(at, "%s has no apiGroups or no resources", at)
		}
		for _, group := range rule.APIGroups {
			if strings.Contains(group, "/") {
				l.warn(o.Path, o.lines.Of("rules", strconv.Itoa(i)),
					fmt.Sprintf("%s %s: %q is an API group with a version: remove the version, or the rule grants nothing",
						o.kind, o.name, group))
			}
		}
	}
}
