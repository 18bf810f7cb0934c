package selectors

import (
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
)

// guardRules returns the rules of a template that requires permission: that of its selector, and for each overlay those
// of the namespaces that enter or leave the overlay. An overlay may add objects and drop others, so a user who chooses
// it chooses what the namespace gets. A namespace leaves an overlay if it does not meet one of its requirements any
// more.
func guardRules(begin string, spec *v1alpha1.NamespaceTemplateSpec) []Rule {
	base := requirements(spec.Namespaces.LabelSelector)
	rules := []Rule{joined(begin, base)}
	for i := range spec.Overlays {
		if _, err := match.Selector(spec.Overlays[i].Namespaces); err != nil {
			continue
		}
		var more []string
		for _, requirement := range requirements(spec.Overlays[i].Namespaces.LabelSelector) {
			if !slices.Contains(base, requirement) {
				more = append(more, requirement)
			}
		}
		if len(more) > 0 {
			rules = append(rules, joined(begin, base, more))
		}
		for _, requirement := range more {
			rules = append(rules, joined(begin, base, []string{negated(requirement)}))
		}
	}
	return rules
}

// joined returns the rule with a beginning and requirements.
func joined(begin string, requirements ...[]string) Rule {
	words := slices.Concat(requirements...)
	slices.Sort(words)
	return Rule(strings.Join(append([]string{begin}, slices.Compact(words)...), " "))
}

// negated returns the requirement that labels meet if they do not meet another one.
func negated(requirement string) string {
	key, isNegative := strings.CutPrefix(requirement, "!")
	switch {
	case isNegative:
		return key
	case strings.Contains(requirement, "~"):
		return strings.Replace(requirement, "~", "=", 1)
	case strings.Contains(requirement, "="):
		return strings.Replace(requirement, "=", "~", 1)
	}
	return "!" + requirement
}

// guards reports whether the rule is of a template that requires permission.
func (r Rule) guards() bool {
	return strings.HasPrefix(string(r), Guards) || strings.HasPrefix(string(r), GuardsDisabled)
}

// words returns the requirements of the rule.
func (r Rule) words() []string { return strings.Split(string(r), " ")[1:] }

// Restricts reports whether a template with some rules requires permission for a namespace for which it does not with
// the rules before, as far as that can be read from the rules.
func Restricts(before, after []Rule) bool {
	return slices.ContainsFunc(after, func(rule Rule) bool {
		words := rule.words()
		return rule.guards() && !slices.ContainsFunc(before, func(wider Rule) bool {
			return wider.guards() && !slices.ContainsFunc(wider.words(), func(word string) bool {
				return !slices.Contains(words, word)
			})
		})
	})
}
