package vet

import (
	"cmp"
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/auth/rbac/validation"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/manifest"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// brought is what the files bring to the cluster and other objects in them may depend on. The API server tries each
// object alone, so it denies an object that depends on another one of the files.
type brought struct {
	// spaces has the names of the policy spaces.
	spaces map[string]bool
	// protecting has the ClusterProtectedAttribute of each label and annotation.
	protecting map[attributes.Attribute]source.Object
	grants     []grant
}

// grant is what a ClusterRole that is aggregated to the operator's, or a binding of the operator, allows it.
type grant struct {
	by source.Object
	// namespace is empty for all namespaces.
	namespace string
	rules     []rbacv1.PolicyRule
}

func newBrought(objects []source.Object) brought {
	b := brought{
		spaces: map[string]bool{}, protecting: map[attributes.Attribute]source.Object{}, grants: grantsIn(objects),
	}
	for _, object := range objects {
		switch object.GroupVersionKind() {
		case v1alpha1.GroupVersion.WithKind("PolicySpace"):
			b.spaces[object.Name] = true
		case v1alpha1.GroupVersion.WithKind("ClusterProtectedAttribute"):
			var rule v1alpha1.ClusterProtectedAttribute
			if _, whole := manifest.Decode(object.Data, &rule); whole {
				b.protecting[attributes.Rule{AttributeRule: rule.AttributeRule}.Attribute()] = object
			}
		}
	}
	return b
}

// grantsIn returns what roles and bindings allow the operator. It leaves out bindings of roles that are not among the
// objects, whose rules are unknown.
func grantsIn(objects []source.Object) (grants []grant) {
	roles := map[types.NamespacedName][]rbacv1.PolicyRule{}
	for _, object := range objects {
		var role rbacv1.ClusterRole // a Role has the same fields
		if !isRBAC(object, v1alpha1.ClusterRoleKind, v1alpha1.RoleKind) || json.Unmarshal(object.Data, &role) != nil {
			continue
		}
		if object.Kind == v1alpha1.ClusterRoleKind && role.Labels[v1alpha1.AggregateLabel] == "true" {
			grants = append(grants, grant{by: object, rules: role.Rules})
		}
		roles[types.NamespacedName{Namespace: namespaceOf(object), Name: object.Name}] = role.Rules
	}
	for _, object := range objects {
		var binding rbacv1.RoleBinding // a ClusterRoleBinding has the same fields
		if !isRBAC(object, "ClusterRoleBinding", "RoleBinding") || json.Unmarshal(object.Data, &binding) != nil {
			continue
		}
		role := types.NamespacedName{Name: binding.RoleRef.Name}
		if binding.RoleRef.Kind == v1alpha1.RoleKind {
			role.Namespace = namespaceOf(object)
		}
		if rules := roles[role]; rules != nil && bindsOperator(binding.Subjects, namespaceOf(object)) {
			grants = append(grants, grant{by: object, namespace: namespaceOf(object), rules: rules})
		}
	}
	return grants
}

func isRBAC(object source.Object, kinds ...string) bool {
	return object.GroupVersionKind().Group == rbacv1.GroupName && slices.Contains(kinds, object.Kind)
}

// namespaceOf returns the namespace of a Role or a RoleBinding. It is empty for the cluster-scoped kinds.
func namespaceOf(object source.Object) string {
	if isRBAC(object, v1alpha1.ClusterRoleKind, "ClusterRoleBinding") {
		return ""
	}
	return cmp.Or(object.Namespace, metav1.NamespaceDefault)
}

func bindsOperator(subjects []rbacv1.Subject, namespace string) bool {
	operator := attributes.Requester{Name: v1alpha1.OperatorUser, Groups: []string{
		"system:serviceaccounts", "system:serviceaccounts:" + v1alpha1.OperatorNamespace, "system:authenticated",
	}}
	return slices.ContainsFunc(subjects, func(subject rbacv1.Subject) bool {
		bound, isValid := attributes.SubjectOf(subject, namespace)
		return isValid && operator.Is(bound)
	})
}

// dependsOnFiles reports whether the API server denies a template only because it lacks other objects of the files. It
// then reports what the template depends on as a reason why the template is not checked.
func (c *checker) dependsOnFiles(object source.Object, reason string) bool {
	if !object.IsTemplate() {
		return false
	}
	if granting, found := c.brought.right(reason); found {
		c.depends(object, granting)
		return true
	}
	template, _ := decodeTemplate(object)
	var keys []render.MetadataKey
	for _, key := range render.UsedKeys(&template.Spec) {
		_, isProtected := c.brought.protecting[key.Attribute()]
		if isProtected && strings.Contains(reason, key.Token()) {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 || reason != render.NewUnprotectedError(keys).Error() {
		return false // the files do not protect all keys of the reason, or it is about something else
	}
	for _, key := range keys {
		c.depends(object, c.brought.protecting[key.Attribute()])
	}
	return true
}

// depends reports that a template as a whole is not checked: the API server checks nothing after the first denial.
func (c *checker) depends(template, on source.Object) {
	c.skip(template, "", "it depends on "+nameOf(on)+" of these files, which is not applied yet")
}

var (
	// missingSource matches the reason that the operator may not read a source.
	missingSource = regexp.MustCompile(`^the operator may not get (\S+) "([^"]+)" in namespace (\S+): grant that with `)
	// missingRule matches the reason that the operator's ClusterRoles lack a rule, with the missing verbs and the rule.
	missingRule = regexp.MustCompile(`the operator may not ((?:[a-z]+, )*[a-z]+) .*\badd a ClusterRole with the label ` +
		regexp.QuoteMeta(v1alpha1.AggregateLabel) + `: "true" and the rule (\{[^}]*\})`)
)

// right returns the object of the files that gives the operator the right which it lacks by a reason.
func (b *brought) right(reason string) (granting source.Object, found bool) {
	lacking, in, isRight := lackingRight(reason)
	for _, grant := range b.grants {
		if !isRight || grant.namespace != "" && grant.namespace != in {
			continue
		}
		if covers, _ := validation.Covers(grant.rules, []rbacv1.PolicyRule{lacking}); covers {
			return grant.by, true
		}
	}
	return source.Object{}, false
}

// lackingRight returns the right that the operator lacks by a reason, and its namespace, which is empty for all.
func lackingRight(reason string) (lacking rbacv1.PolicyRule, namespace string, isRight bool) {
	if match := missingSource.FindStringSubmatch(reason); match != nil {
		resource := schema.ParseGroupResource(match[1])
		return rbacv1.PolicyRule{
			Verbs: []string{"get"}, APIGroups: []string{resource.Group}, Resources: []string{resource.Resource},
			ResourceNames: []string{match[2]},
		}, match[3], true
	}
	match := missingRule.FindStringSubmatch(reason)
	if match == nil || yaml.Unmarshal([]byte(match[2]), &lacking) != nil {
		return rbacv1.PolicyRule{}, "", false
	}
	lacking.Verbs = strings.Split(match[1], ", ") // the rule has all verbs that the operator needs
	return lacking, "", true
}
