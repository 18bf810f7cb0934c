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

// words returns the requirements of the rule. The other words have a colon.
func (r Rule) words() []string {
	hasColon := func(word string) bool { return strings.Contains(word, ":") }
	return slices.DeleteFunc(strings.Split(string(r), " "), hasColon)
}

// Restricts reports whether a template with some rules requires permission for a namespace for which it does not with
// the rules before. It takes a namespace that only several rules before select together for such a namespace.
func Restricts(before, after []Rule) bool {
	return slices.ContainsFunc(after, func(rule Rule) bool {
		return rule.guards() && !slices.ContainsFunc(before, func(wider Rule) bool {
			return wider.guards() && wider.includes(rule)
		})
	})
}

// includes reports whether the rule selects every namespace that another one selects: one of the other's requirements
// implies each of its own.
func (r Rule) includes(other Rule) bool {
	words := other.words()
	return !slices.ContainsFunc(r.words(), func(word string) bool {
		return !slices.ContainsFunc(words, func(stronger string) bool { return implies(stronger, word) })
	})
}

// implies reports whether labels that meet one requirement meet another one.
func implies(stronger, weaker string) bool {
	key, operator, values := split(stronger)
	other, wanted, allowed := split(weaker)
	isAllowed := func(value string) bool { return slices.Contains(allowed, value) }
	isValue := func(value string) bool { return slices.Contains(values, value) }
	switch {
	case key != other:
		return false
	case operator == '=' && wanted == '=':
		return !slices.ContainsFunc(values, func(value string) bool { return !isAllowed(value) })
	case operator == '=' && wanted == '~':
		return !slices.ContainsFunc(values, isAllowed)
	case operator == '~' && wanted == '~':
		return !slices.ContainsFunc(allowed, func(value string) bool { return !isValue(value) })
	}
	return operator == wanted || operator == '=' && wanted == 0 || operator == '!' && wanted == '~'
}

// split returns the key of a requirement, its values, and its operator: '=', '~', '!', or 0 for a key of any value.
func split(requirement string) (key string, operator byte, values []string) {
	if key, isNegative := strings.CutPrefix(requirement, "!"); isNegative {
		return key, '!', nil
	}
	at := strings.IndexAny(requirement, "=~")
	if at < 0 {
		return requirement, 0, nil
	}
	return requirement[:at], requirement[at], strings.Split(requirement[at+1:], "|")
}
