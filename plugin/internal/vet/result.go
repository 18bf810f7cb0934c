package vet

import (
	"cmp"
	"slices"
	"strings"
)

// The apiVersion and kind of the output of -o json. The version changes when a field is renamed or removed.
const (
	resultVersion = "cli.policy.nstpl.dev/v1alpha1"
	resultKind    = "VetResult"
)

// result is what a check found: the output of -o json, for files and for trees.
type result struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Valid reports whether there are no violations.
	Valid      bool      `json:"valid"`
	Violations []finding `json:"violations"`
	// Warnings are about what is allowed, but may not have the expected effect. They have no rule.
	Warnings []finding `json:"warnings"`
	// Skipped has what was not checked. The message says why.
	Skipped []finding `json:"skipped"`
}

// finding is a violation, a warning, or something that was not checked.
type finding struct {
	Rule string `json:"rule,omitempty"`
	// Path is the path of the file or directory. Line is 0 if the finding concerns all of it.
	Path string `json:"path"`
	Line int    `json:"line"`
	// Object is the object of the document, such as namespacetemplate/example, and Field the path of a field in it.
	Object  string `json:"object,omitempty"`
	Field   string `json:"field,omitempty"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`

	// begins is the line where the object begins.
	begins int
}

// text returns the finding without its position and its rule.
func (f finding) text() string {
	var parts []string
	for _, part := range []string{f.Object, f.Field, f.Message} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	text := strings.Join(parts, ": ")
	if f.Remedy != "" {
		text += " (" + f.Remedy + ")"
	}
	return text
}

// finish orders the findings by path and line.
func (r *result) finish() {
	r.APIVersion, r.Kind, r.Valid = resultVersion, resultKind, len(r.Violations) == 0
	for _, findings := range []*[]finding{&r.Violations, &r.Warnings, &r.Skipped} {
		slices.SortStableFunc(*findings, func(a, b finding) int {
			return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
		})
		*findings = append([]finding{}, slices.Compact(*findings)...) // not null in JSON
	}
}
