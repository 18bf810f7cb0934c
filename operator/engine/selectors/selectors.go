// Package selectors writes label selectors as the data of a ConfigMap, in which an admission policy finds those that
// select a namespace without trying the others.
//
// The API server evaluates a policy once for each of its parameters. With every NamespaceTemplate as a parameter, the
// cost of each request for a namespace grows with the number of templates. With the ConfigMap as the only parameter, it
// depends on the labels of the namespace: the policy looks up each of them.
//
// Each line of the data has a label and a Rule. The rule selects no namespace without the label: of the labels that a
// rule requires, the line has the one that fewest rules require. The policy splits the text at each label of the
// namespace, which is one native operation of the API server, however long the text is. The lines are spread over at
// most a few dozen keys, by the last character of the label's value, because the API server copies the list of keys at
// each evaluation. The expression that reads the data is in manifests/admission/generate.
package selectors

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// The first word of a rule says for what it selects namespaces. A name follows, except after Populates.
const (
	// Populates begins the rules of templates.
	Populates = "t:"
	// Guards begins the rules of templates that require permission.
	Guards = "g:"
	// GuardsDisabled begins the rules of templates that require permission and are disabled.
	GuardsDisabled = "d:"
	// Initializes begins the rules of initializers.
	Initializes = "i:"
)

// maxIndexed is the number of values up to which a requirement In is looked up by its values.
const maxIndexed = 32

// Rule selects namespaces for a purpose: its words are the first word, which contains a colon, and the requirements of
// a selector.
type Rule string

// maxCopies is the size in bytes up to which the rule of a template that requires permission, or of an initializer, is
// repeated for the values by which it is looked up. Those of other templates are abridged instead.
const maxCopies = 2 << 10

// OfTemplate returns the rules of one revision of a template; the rules of all revisions in force are needed. A
// selector that cannot be parsed selects nothing. No rules are needed for namespaces that a policy tree's template
// populates, because only namespaces in policy spaces have the labels by which it selects them, and these are
// initialized anyway.
func OfTemplate(template *v1alpha1.NamespaceTemplate) []Rule {
	if _, err := match.Selector(template.Spec.Namespaces); err != nil {
		return nil
	}
	selector := template.Spec.Namespaces.LabelSelector
	disabled := match.DisabledReason(template) != ""
	switch {
	case match.RequiresPermission(template) && disabled:
		return guardRules(GuardsDisabled+template.Name, &template.Spec)
	case match.RequiresPermission(template):
		return guardRules(Guards+template.Name, &template.Spec)
	case disabled || requiresPolicySpace(selector):
		return nil
	}
	return []Rule{newRule(Populates, selector)}
}

// OfConfiguration returns the rules of a configuration's initializers.
func OfConfiguration(configuration *v1alpha1.NamespaceInitializationConfiguration) []Rule {
	if configuration.DeletionTimestamp != nil {
		return nil
	}
	var all []Rule
	for i := range configuration.Initializers {
		initializer := &configuration.Initializers[i]
		if _, err := metav1.LabelSelectorAsSelector(initializer.NamespaceSelector); err == nil {
			// The policy lists initializers by the second word, in the order in which the configurations do.
			begin := fmt.Sprintf("%s%s o:%s:%02d", Initializes, initializer.Name, configuration.Name, i)
			all = append(all, newRule(begin, initializer.NamespaceSelector))
		}
	}
	return all
}

// requiresPolicySpace reports whether a selector selects only namespaces with a label that the operator alone sets, on
// namespaces in policy spaces.
func requiresPolicySpace(selector *metav1.LabelSelector) bool {
	for key := range selector.MatchLabels {
		if strings.HasSuffix(key, v1alpha1.DepthLabelSuffix) {
			return true
		}
	}
	return slices.ContainsFunc(selector.MatchExpressions, func(e metav1.LabelSelectorRequirement) bool {
		return strings.HasSuffix(e.Key, v1alpha1.DepthLabelSuffix) &&
			(e.Operator == metav1.LabelSelectorOpIn || e.Operator == metav1.LabelSelectorOpExists)
	})
}

// newRule returns the rule with a beginning and the requirements of a selector.
func newRule(begin string, selector *metav1.LabelSelector) Rule {
	return joined(begin, requirements(selector))
}

// requirements returns the requirements of a selector: key=value|value, key~value|value for NotIn, key, and !key.
func requirements(selector *metav1.LabelSelector) []string {
	var all []string
	for key, value := range selector.MatchLabels {
		all = append(all, key+"="+value)
	}
	for _, e := range selector.MatchExpressions {
		values := slices.Compact(slices.Sorted(slices.Values(e.Values)))
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			all = append(all, e.Key+"="+strings.Join(values, "|"))
		case metav1.LabelSelectorOpNotIn:
			all = append(all, e.Key+"~"+strings.Join(values, "|"))
		case metav1.LabelSelectorOpExists:
			all = append(all, e.Key)
		case metav1.LabelSelectorOpDoesNotExist:
			all = append(all, "!"+e.Key)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// lookups returns the ways in which a rule can be looked up: for each requirement that a label exists, the labels of
// which a selected namespace has one. A label is key=value, or key for any value.
func (r Rule) lookups() [][]string {
	var all [][]string
	for word := range strings.SplitSeq(string(r), " ") {
		key, values, exact := strings.Cut(word, "=")
		list := strings.Split(values, "|")
		switch {
		case strings.ContainsAny(word, ":!~"):
		case !exact || len(list) > maxIndexed || !r.populates() && len(list) > 1 && len(list)*len(r) > maxCopies:
			all = append(all, []string{key})
		default:
			for i, value := range list {
				list[i] = key + "=" + value
			}
			all = append(all, list)
		}
	}
	return all
}
