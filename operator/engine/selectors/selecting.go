package selectors

import (
	"slices"
	"strings"
)

// Selecting reports whether a template populates a namespace with some labels, and returns the initializers that it
// waits for, in the order of their configurations. The admission policies decide the same.
func (s Set) Selecting(labels map[string]string) (populates bool, initializers []string) {
	var selecting []Rule
	for rule := range s {
		switch {
		case !rule.selects(labels):
		case strings.HasPrefix(string(rule), Initializes):
			selecting = append(selecting, rule)
		case rule.populates() || strings.HasPrefix(string(rule), Guards):
			populates = true
		}
	}
	order := func(rule Rule) string { // after its name
		_, order, _ := strings.Cut(string(rule), " ")
		return order
	}
	slices.SortFunc(selecting, func(a, b Rule) int { return strings.Compare(order(a), order(b)) })
	for _, rule := range selecting {
		name, _, _ := strings.Cut(strings.TrimPrefix(string(rule), Initializes), " ")
		initializers = append(initializers, name)
	}
	return populates, initializers
}

// selects reports whether the rule selects a namespace with some labels.
func (r Rule) selects(labels map[string]string) bool {
	return !slices.ContainsFunc(r.words(), func(word string) bool {
		key, operator, values := split(word)
		value, exists := labels[key]
		switch operator {
		case '=':
			return !exists || !slices.Contains(values, value)
		case '~':
			return exists && slices.Contains(values, value)
		case '!':
			return exists
		}
		return !exists
	})
}
