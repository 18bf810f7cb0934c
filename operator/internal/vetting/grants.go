package vetting

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-helpers/auth/rbac/validation"

	"nstpl.dev/nstpl/operator/engine/render"
)

// right is a right that a user may hold in all namespaces. An empty name stands for every name.
type right struct {
	verb, group, resource, subresource, name string
	// namespace is where the right must be held, or "" for all namespaces.
	namespace string
	// path, if not empty, is a non-resource URL. Then only verb is set, too.
	path string
}

func (r right) String() string {
	if r.path != "" {
		return r.verb + " " + r.path
	}
	text := r.verb + " " + r.resource
	if r.group != "" {
		text += "." + r.group
	}
	if r.subresource != "" {
		text += "/" + r.subresource
	}
	if r.name != "" {
		text += fmt.Sprintf(" %q", r.name)
	}
	if r.namespace != "" {
		text += fmt.Sprintf(" in namespace %q", r.namespace)
	}
	return text
}

// grant is what a Role or RoleBinding of a template grants.
type grant struct {
	// object names the object of the template, and the overlays with which it grants this, in messages.
	object string
	// granting is the right to grant what one does not hold: escalate or bind.
	granting right
	// role is the name of a declared Role, with its tokens, or "".
	role string
	// rules are what is granted. If clusterRole is not empty, readClusterRole sets them.
	rules       []rbacv1.PolicyRule
	clusterRole string
	// unknown, if not empty, is the reason why the rules cannot be known. Then only the right granting suffices.
	unknown string
}

// grantsOf returns what the RBAC objects of a template's variants grant, each grant once. declaredElsewhere reports
// whether another template may declare a Role of a name. The errors are about objects that are invalid: the API server
// would not store them either.
func grantsOf(variants []render.Variant, declaredElsewhere func(role string) bool) ([]grant, []error) {
	var grants []grant
	var problems []error
	seen := map[string]bool{}
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			g, err := grantOf(object, variant, declaredElsewhere)
			if g == nil && err == nil {
				continue
			}
			key, _ := json.Marshal([]any{object.GetKind(), object.GetName(), fmt.Sprint(g), fmt.Sprint(err)})
			if seen[string(key)] {
				continue
			}
			seen[string(key)] = true
			where := object.GetKind() + " " + object.GetName()
			if len(variant.Overlays) > 0 {
				where += " with overlays " + strings.Join(variant.Overlays, ", ")
			}
			if err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", where, err))
				continue
			}
			g.object = where
			grants = append(grants, *g)
		}
	}
	return grants, problems
}

// isRBAC reports whether an object is of a kind of the RBAC API group, in any version.
func isRBAC(object *unstructured.Unstructured, kind string) bool {
	return object.GroupVersionKind().Group == rbacv1.GroupName && object.GetKind() == kind
}

// grantOf returns what an object grants, or nil if it is not an RBAC object.
func grantOf(
	object *unstructured.Unstructured, variant render.Variant, declaredElsewhere func(string) bool,
) (*grant, error) {
	switch {
	case isRBAC(object, "Role"):
		rules, err := rulesOf(object)
		return &grant{
			granting: grantingRight("escalate", "roles", object.GetName()), role: object.GetName(), rules: rules,
		}, err
	case isRBAC(object, "RoleBinding"):
		return bindingGrant(object, variant, declaredElsewhere)
	}
	return nil, nil
}

// grantingRight returns the right to bind or escalate a role. If the name contains a token, it returns the right for
// every name, since the names of namespaces and users then choose the role.
func grantingRight(verb, resource, name string) right {
	literal, constant := render.Literal(name)
	if !constant {
		literal = ""
	}
	return right{verb: verb, group: rbacv1.GroupName, resource: resource, name: literal}
}

// bindingGrant returns what a RoleBinding grants.
func bindingGrant(
	object *unstructured.Unstructured, variant render.Variant, declaredElsewhere func(string) bool,
) (*grant, error) {
	binding := &rbacv1.RoleBinding{}
	if err := decode(object, binding); err != nil {
		return nil, err
	}
	ref := binding.RoleRef
	switch {
	case ref.APIGroup != "" && ref.APIGroup != rbacv1.GroupName:
		return nil, fmt.Errorf("roleRef.apiGroup is %q: it must be %s", ref.APIGroup, rbacv1.GroupName)
	case ref.Name == "":
		return nil, errors.New("roleRef.name is missing")
	}
	literal, constant := render.Literal(ref.Name)
	switch ref.Kind {
	case "ClusterRole":
		g := &grant{granting: grantingRight("bind", "clusterroles", ref.Name)}
		if constant {
			g.clusterRole = literal
		} else {
			g.unknown = fmt.Sprintf("the token in roleRef.name %q lets other users choose the ClusterRole", ref.Name)
		}
		return g, nil
	case "Role":
		g := &grant{granting: grantingRight("bind", "roles", ref.Name)}
		role := declaredRole(variant, ref.Name)
		switch {
		case role == nil:
			g.unknown = fmt.Sprintf("Role %s is not declared by this template, so it may have any rules", ref.Name)
		case variesIn(role) != "":
			g.unknown = fmt.Sprintf(
				"Role %s contains %s, so it is omitted or invalid in some namespaces, where the binding would refer to another Role",
				ref.Name, variesIn(role))
		case !hasPlainMetadata(role):
			g.unknown = fmt.Sprintf(
				"Role %s has metadata for which the API server may reject it, and then the binding would refer to another Role: "+
					"keep only name, labels and annotations", ref.Name)
		case declaredElsewhere(ref.Name):
			g.unknown = fmt.Sprintf("another template may declare Role %s too, with other rules", ref.Name)
		default:
			var err error
			g.rules, err = rulesOf(role)
			return g, err
		}
		return g, nil
	}
	return nil, fmt.Errorf("roleRef.kind is %q: it must be Role or ClusterRole", ref.Kind)
}

// declaredRole returns the Role that a variant declares under a name with its tokens, or nil.
func declaredRole(variant render.Variant, name string) *unstructured.Unstructured {
	for _, object := range variant.Objects() {
		if isRBAC(object, "Role") && object.GetName() == name {
			return object
		}
	}
	return nil
}

// variesIn returns a token in an object, outside of its name, for which users choose the text, or "". Such tokens are
// those of the creator, of labels and of annotations. In the name they do no harm, since the binding refers to the Role
// by the same name.
func variesIn(object *unstructured.Unstructured) string {
	object = object.DeepCopy()
	object.SetName("")
	return render.UserToken(object.Object)
}

// hasPlainMetadata reports whether no field of an object's metadata can make the API server reject it, as a
// resourceVersion would.
func hasPlainMetadata(object *unstructured.Unstructured) bool {
	metadata, _ := object.Object["metadata"].(map[string]any)
	for field := range metadata {
		switch field {
		case "name", "namespace", "labels", "annotations":
		default:
			return false
		}
	}
	return len(render.CheckLimits(object)) == 0
}

// decode decodes an object and returns an error for unknown fields. If the API server rejected the object, another one
// with unknown content could keep its name.
func decode(object *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true)
}

// rulesOf returns the rules of a Role. A token in them stands for every value.
func rulesOf(object *unstructured.Unstructured) ([]rbacv1.PolicyRule, error) {
	role := &rbacv1.Role{}
	if err := decode(object, role); err != nil {
		return nil, err
	}
	rules := make([]rbacv1.PolicyRule, 0, len(role.Rules))
	for i, rule := range role.Rules {
		if len(rule.Verbs) == 0 || len(rule.APIGroups) == 0 || len(rule.Resources) == 0 ||
			len(rule.NonResourceURLs) > 0 {
			return nil, fmt.Errorf(
				"rules[%d]: a rule of a Role must have verbs, apiGroups and resources, and must not have nonResourceURLs", i)
		}
		wide := rbacv1.PolicyRule{
			Verbs: widen(rule.Verbs), APIGroups: widen(rule.APIGroups), Resources: widen(rule.Resources),
		}
		for _, name := range rule.ResourceNames {
			literal, constant := render.Literal(name)
			if !constant {
				wide.ResourceNames = nil
				break
			}
			wide.ResourceNames = append(wide.ResourceNames, literal)
		}
		rules = append(rules, wide)
	}
	return rules, nil
}

// widen returns values with "*" in place of each that contains a token.
func widen(values []string) []string {
	wide := make([]string, len(values))
	for i, value := range values {
		literal, constant := render.Literal(value)
		if !constant {
			literal = "*"
		}
		wide[i] = literal
	}
	return wide
}

// countRights returns the number of rights in rules, so that too many are never listed.
func countRights(rules []rbacv1.PolicyRule) int {
	total := 0
	for _, rule := range rules {
		total += len(rule.Verbs) * (len(rule.APIGroups)*len(rule.Resources)*max(1, len(rule.ResourceNames)) +
			len(rule.NonResourceURLs))
	}
	return total
}

// rightsIn returns the rights in rules, as RBAC's check for privilege escalation separates them.
func rightsIn(rules []rbacv1.PolicyRule) []right {
	var all []right
	for _, rule := range rules {
		for _, part := range validation.BreakdownRule(rule) {
			r := right{verb: part.Verbs[0]}
			if len(part.NonResourceURLs) > 0 {
				r.path = part.NonResourceURLs[0]
			} else {
				r.group = part.APIGroups[0]
				r.resource, r.subresource, _ = strings.Cut(part.Resources[0], "/")
			}
			if len(part.ResourceNames) > 0 {
				r.name = part.ResourceNames[0]
			}
			all = append(all, r)
		}
	}
	return all
}

// listRights returns the first few rights in the form of a message.
func listRights(missing []right) string {
	const few = 5
	texts := make([]string, 0, len(missing))
	for _, q := range missing {
		texts = append(texts, q.String())
	}
	slices.Sort(texts)
	if texts = slices.Compact(texts); len(texts) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(texts[:few], ", "), len(texts)-few)
	}
	return strings.Join(texts, ", ")
}
