package schema

import (
	"regexp"
	"strings"
)

// patterns are the regular expressions that schemas of nstpl and of other projects use most, in words.
var patterns = map[string][2]string{
	`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`: {
		"is not a DNS label", "use lower-case letters, digits and '-', with a letter or digit at both ends",
	},
	`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`: {
		"is not a DNS name", "use lower-case letters, digits, '-' and '.', with a letter or digit at both ends",
	},
	`^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$`: {
		"is not a quantity", quantityForms,
	},
	// That of nstpl's own kinds.
	`^[+-]?([0-9]{1,64}(\.[0-9]{0,64})?|\.[0-9]{1,64})([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]{1,2})?$`: {
		"is not a quantity", quantityForms,
	},
}

// limits are the beginnings of details about limits, in words.
var limits = []struct {
	detail *regexp.Regexp
	words  string
}{
	{regexp.MustCompile(`^should be greater than or equal to `), "must be at least "},
	{regexp.MustCompile(`^should be less than or equal to `), "must be at most "},
	{regexp.MustCompile(`^should be at least 1 chars long$`), "must not be empty"},
	{regexp.MustCompile(`^should be (at least|at most) (\d+) chars long$`), "must have $1 $2 characters"},
	{regexp.MustCompile(`^should have `), "must have "},
	{regexp.MustCompile(`^should be `), "must be "},
}

// inWords returns the detail of an error of the API server's schema validation as a message for a person, and what to
// do about it.
func inWords(detail string) (message, remedy string) {
	if rest, found := strings.CutPrefix(detail, "should match '"); found {
		pattern := strings.TrimSuffix(rest, "'")
		if words, known := patterns[pattern]; known {
			return words[0], words[1]
		}
		return "has characters that are not allowed", "match the regular expression " + pattern
	}
	for _, limit := range limits {
		if limit.detail.MatchString(detail) {
			return limit.detail.ReplaceAllString(detail, limit.words), ""
		}
	}
	return detail, ""
}
