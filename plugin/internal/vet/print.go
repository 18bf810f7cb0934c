package vet

import (
	"fmt"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// maxFindings is how many findings of a kind are printed as lines at most.
const maxFindings = 100

// first returns the first findings, and prints how many more there are, unless it is one.
func (v *vet) first(findings []finding, what string) []finding {
	if more := len(findings) - maxFindings; more > 1 {
		v.Note("%d more %s: -o json has all", more, what)
		return findings[:maxFindings]
	}
	return findings
}

// print prints a result: the violations to standard output, in the chosen format, and as lines to standard error the
// warnings, what was not checked, and a summary. checked says what was checked.
func (v *vet) print(r *result, checked string) error {
	var err error
	switch v.output.Format {
	case cli.FormatJSON:
		err = output.JSON(v.Out, r)
	case sarifFormat:
		err = output.JSON(v.Out, newSARIF(r))
	default:
		for _, violation := range v.first(r.Violations, "violations") {
			output.Finding(v.Out, output.Position(violation.Path, violation.Line), violation.Rule, violation.text())
		}
	}
	for _, warning := range v.first(r.Warnings, "warnings") {
		v.Note("Warning: %s: %s", output.Position(warning.Path, warning.Line), warning.text())
	}
	for _, skipped := range v.first(r.Skipped, "objects that are not checked") {
		v.Note("not checked: %s: %s", output.Position(skipped.Path, skipped.Line), skipped.text())
	}
	v.Note("%s: %s", checked, r.summary())
	return err
}

// summary returns how much was found.
func (r *result) summary() string {
	summary := "no violations"
	if len(r.Violations) > 0 {
		summary = output.Count(len(r.Violations), "violation")
	}
	if len(r.Warnings) > 0 {
		summary += ", " + output.Count(len(r.Warnings), "warning")
	}
	if len(r.Skipped) > 0 {
		summary += fmt.Sprintf(", %d not checked", len(r.Skipped))
	}
	return summary
}
