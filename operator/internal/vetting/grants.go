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

	"nstpl.dev/nstpl/operator/engine/render"
)

// question is one that can be asked about a user's rights in all namespaces. An empty name is every name.
type question struct {
	verb, group, resource, subresource, name string
	// path is a non-resource URL, in place of the resource.
	path string
}

func (q question) String() string {
	if q.path != "" {
		return q.verb + " " + q.path
	}
	text := q.verb + " " + q.resource
	if q.group != "" {
		text += "." + q.group
	}
	if q.subresource != "" {
		text += "/" + q.subresource
	}
	if q.name != "" {
		text += fmt.Sprintf(" %q", q.name)
	}
	return text
}

// grant is what an object of RBAC hands out.
type grant struct {
	// object says which object of the template it is, and with which overlays.
	object string
	// power is the right to hand out what one doesn't hold: escalate or bind.
	power question
	// role is the name of a Role that is declared, tokens and all, or "".
	role string
	// rules are handed out. Those of a ClusterRole are still to be read.
	rules       []rbacv1.PolicyRule
	clusterRole string
	// unknown says why nobody can tell what is handed out; only power helps then.
	unknown string
}

// grantsOf returns what the RBAC objects of a template hand out with any combination of its overlays, each grant once.
// elsewhere tells whether another template may declare a Role of a name. The errors are of objects that can't be
// judged, which no API server would store either.
func grantsOf(variants []render.Variant, elsewhere func(role string) bool) ([]grant, []error) {
	var grants []grant
	var problems []error
	seen := map[string]bool{}
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			found, err := grantOf(object, variant, elsewhere)
			if found == nil && err == nil {
				continue
			}
			key, _ := json.Marshal([]any{object.GetKind(), object.GetName(), fmt.Sprint(found), fmt.Sprint(err)})
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
			found.object = where
			grants = append(grants, *found)
		}
	}
	return grants, problems
}

// isRBAC tells whether an object falls under RBAC's own rules on escalation, whatever its version.
func isRBAC(object *unstructured.Unstructured, kind string) bool {
	return object.GroupVersionKind().Group == rbacv1.GroupName && object.GetKind() == kind
}

func grantOf(object *unstructured.Unstructured, variant render.Variant, elsewhere func(string) bool) (*grant, error) {
	switch {
	case isRBAC(object, "Role"):
		rules, err := rulesOf(object)
		return &grant{power: power("escalate", "roles", object.GetName()), role: object.GetName(), rules: rules}, err
	case isRBAC(object, "RoleBinding"):
		return bindingGrant(object, variant, elsewhere)
	}
	return nil, nil
}

// power asks for every name where a token stands in it: whoever names a namespace or a user chooses.
func power(verb, resource, name string) question {
	literal, constant := render.Literal(name)
	if !constant {
		literal = ""
	}
	return question{verb: verb, group: rbacv1.GroupName, resource: resource, name: literal}
}

func bindingGrant(
	object *unstructured.Unstructured, variant render.Variant, elsewhere func(string) bool,
) (*grant, error) {
	binding := &rbacv1.RoleBinding{}
	if err := decode(object, binding); err != nil {
		return nil, err
	}
	ref := binding.RoleRef
	switch {
	case ref.APIGroup != "" && ref.APIGroup != rbacv1.GroupName:
		return nil, fmt.Errorf("roleRef.apiGroup is %q: it can only be %s", ref.APIGroup, rbacv1.GroupName)
	case ref.Name == "":
		return nil, errors.New("roleRef.name is missing")
	}
	literal, constant := render.Literal(ref.Name)
	switch ref.Kind {
	case "ClusterRole":
		found := &grant{power: power("bind", "clusterroles", ref.Name)}
		if constant {
			found.clusterRole = literal
		} else {
			found.unknown = fmt.Sprintf("the token in roleRef.name %q lets others choose the ClusterRole", ref.Name)
		}
		return found, nil
	case "Role":
		found := &grant{power: power("bind", "roles", ref.Name)}
		role := declaredRole(variant, ref.Name)
		switch {
		case role == nil:
			found.unknown = fmt.Sprintf("Role %s is not declared by this template, so its rules may be any", ref.Name)
		case namesCreator(role):
			found.unknown = fmt.Sprintf(
				"Role %s holds %s, without which it may be left out or refused, and then another is bound", ref.Name,
				render.CreatorToken)
		case !plain(role):
			found.unknown = fmt.Sprintf(
				"Role %s has metadata for which it may be refused, and then another is bound: leave it name, labels and annotations", ref.Name)
		case elsewhere(ref.Name):
			found.unknown = fmt.Sprintf("another template may declare Role %s too, with other rules", ref.Name)
		default:
			var err error
			found.rules, err = rulesOf(role)
			return found, err
		}
		return found, nil
	}
	return nil, fmt.Errorf("roleRef.kind is %q: it can be Role or ClusterRole", ref.Kind)
}

// declaredRole returns the Role that a template declares under a name, tokens and all.
func declaredRole(variant render.Variant, name string) *unstructured.Unstructured {
	for _, object := range variant.Objects() {
		if isRBAC(object, "Role") && object.GetName() == name {
			return object
		}
	}
	return nil
}

// namesCreator tells whether the creator's token stands anywhere but in an object's name, where a binding has it too.
func namesCreator(object *unstructured.Unstructured) bool {
	object = object.DeepCopy()
	object.SetName("")
	data, err := object.MarshalJSON()
	return err != nil || strings.Contains(string(data), render.CreatorToken)
}

// plain tells whether nothing in an object's metadata can make the API server refuse it, as a resourceVersion would.
func plain(object *unstructured.Unstructured) bool {
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

// decode is strict: an object that the API server refuses would leave another in its place, of which nothing is known.
func decode(object *unstructured.Unstructured, into any) error {
	return runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.Object, into, true)
}

// rulesOf returns the rules of a Role, with the widest meaning of tokens in them.
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
				"rules[%d]: a rule of a Role has verbs, apiGroups and resources, and no nonResourceURLs", i)
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

// size returns how many questions rules make, before any is made.
func size(rules []rbacv1.PolicyRule) int {
	total := 0
	for _, rule := range rules {
		total += len(rule.Verbs) * (len(rule.APIGroups)*len(rule.Resources)*max(1, len(rule.ResourceNames)) +
			len(rule.NonResourceURLs))
	}
	return total
}

// questions takes rules apart, as RBAC does to see whether somebody holds them.
func questions(rules []rbacv1.PolicyRule) []question {
	var all []question
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					resource, subresource, _ := strings.Cut(resource, "/")
					for _, name := range names {
						all = append(all,
							question{
								verb: verb, group: group, resource: resource, subresource: subresource, name: name,
							})
					}
				}
			}
			for _, path := range rule.NonResourceURLs {
				all = append(all, question{verb: verb, path: path})
			}
		}
	}
	return all
}

// sayMissing says the first few rights that are missing.
func sayMissing(missing []question) string {
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
