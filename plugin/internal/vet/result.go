package vet

import (
	"cmp"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// resultKind is the kind of the output of -o json. Its version, that of all output, changes when a field is renamed or
// removed.
const resultKind = "VetResult"

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
	// Ref is the object of the document, and Field the path of a field in it.
	Ref     output.ObjectRef `json:"object,omitzero"`
	Field   string           `json:"field,omitempty"`
	Message string           `json:"message"`
	Remedy  string           `json:"remedy,omitempty"`

	// Object is the name of the object, such as namespacetemplate/example.
	Object string `json:"-"`
	// begins is the line where the object begins.
	begins int
}

// text returns the finding without its position and its rule.
func (f finding) text() string {
	parts := slices.DeleteFunc([]string{f.Object, f.Field, f.Message}, func(part string) bool { return part == "" })
	text := strings.Join(parts, ": ")
	if f.Remedy != "" {
		text += " (" + f.Remedy + ")"
	}
	return text
}

// finish orders the findings by path and line.
func (r *result) finish() {
	r.APIVersion, r.Kind, r.Valid = v1alpha1.GroupVersion.String(), resultKind, len(r.Violations) == 0
	for _, findings := range []*[]finding{&r.Violations, &r.Warnings, &r.Skipped} {
		slices.SortStableFunc(*findings, func(a, b finding) int {
			return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
		})
		*findings = append([]finding{}, slices.Compact(*findings)...) // not null in JSON
	}
}
