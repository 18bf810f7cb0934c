// Package selfservice decides which namespaces the rules for self-service of policy spaces allow, and when namespaces
// expire.
package selfservice

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Violations returns what would make the rules of a policy space allow a namespace. It returns none if they allow it,
// and if there are no rules.
func Violations(rules *v1alpha1.SelfService, name string, labels map[string]string) []string {
	if rules == nil {
		return nil
	}
	var violations []string
	if !matches(rules.NamePattern, name) {
		violations = append(violations, "its name must match "+rules.NamePattern)
	}
	for _, key := range slices.Sorted(maps.Keys(rules.Labels)) {
		pattern := string(rules.Labels[key])
		value := labels[key]
		switch {
		case value != "" && matches(pattern, value):
		case strings.Contains(pattern, "*"):
			violations = append(violations, fmt.Sprintf("it must have the label %s with a value that matches %s", key, pattern))
		default:
			violations = append(violations, fmt.Sprintf("it must have the label %s=%s", key, pattern))
		}
	}
	return violations
}

// matches reports whether a pattern matches a whole text. In the characters that names and label values can have, only
// * has a meaning for path.Match.
func matches(pattern, text string) bool {
	matched, err := path.Match(pattern, text)
	return err == nil && matched
}

// MaxAge returns the shortest time that the policy spaces of a lineage let a namespace live, or 0 if it does not
// expire.
func MaxAge(lineage []*v1alpha1.PolicySpace) time.Duration {
	var shortest time.Duration
	for _, space := range lineage {
		rules := space.Spec.SelfService
		if rules == nil || rules.MaxAge == nil || rules.MaxAge.Duration <= 0 {
			continue
		}
		if shortest == 0 || rules.MaxAge.Duration < shortest {
			shortest = rules.MaxAge.Duration
		}
	}
	return shortest
}
