package vet

import (
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// treeResult is the output of vet DIR -o json.
type treeResult struct {
	Valid      bool                  `json:"valid"`
	Violations []hierarchy.Violation `json:"violations"`
	Warnings   []hierarchy.Warning   `json:"warnings"`
}

// checkTree checks the tree in a directory, and prints the violations. Violated reports whether there are any.
func (v *vet) checkTree(dir string) (violated bool, err error) {
	result, err := source.Tree(dir)
	if err != nil {
		return false, err
	}
	checked := treeResult{
		Valid:      len(result.Violations) == 0,
		Violations: append([]hierarchy.Violation{}, result.Violations...),
		Warnings:   append([]hierarchy.Warning{}, result.Warnings...),
	}
	switch v.format {
	case cli.FormatJSON:
		err = output.JSON(v.Out, checked)
	case sarifFormat:
		err = output.JSON(v.Out, newSARIF(checked))
	default:
		for _, violation := range checked.Violations {
			output.Line(v.Out, "%s: %s: %s (%s)", output.Position(violation.Path, violation.Line), violation.Rule,
				violation.Message, violation.Remedy)
		}
	}
	for _, warning := range checked.Warnings {
		v.Note("Warning: %s: %s", output.Position(warning.Path, warning.Line), warning.Message)
	}
	v.Note("%s: %s", result.Tree.Root.Name, output.Count(len(checked.Violations), "violation"))
	return !checked.Valid, err
}
