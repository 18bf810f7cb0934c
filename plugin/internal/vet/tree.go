package vet

import (
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

const sarifFormat = "sarif"

// treeVerdict is what vet DIR -o json prints.
type treeVerdict struct {
	Valid      bool                  `json:"valid"`
	Violations []hierarchy.Violation `json:"violations"`
	Warnings   []hierarchy.Warning   `json:"warnings"`
}

// tree tells whether anything is wrong with the tree in a folder.
func (v *vet) tree(dir string) (found bool, err error) {
	result, err := source.Tree(dir)
	if err != nil {
		return false, err
	}
	verdict := treeVerdict{
		Valid:      len(result.Violations) == 0,
		Violations: append([]hierarchy.Violation{}, result.Violations...),
		Warnings:   append([]hierarchy.Warning{}, result.Warnings...),
	}
	switch v.format {
	case cli.FormatJSON:
		err = output.JSON(v.Out, verdict)
	case sarifFormat:
		err = output.JSON(v.Out, newSARIF(verdict))
	default:
		for _, one := range verdict.Violations {
			output.Line(v.Out, "%s: %s: %s (%s)", output.Position(one.Path, one.Line), one.Rule, one.Message, one.Remedy)
		}
	}
	for _, warning := range verdict.Warnings {
		v.Note("Warning: %s: %s", output.Position(warning.Path, warning.Line), warning.Message)
	}
	v.Note("%s: %s", result.Tree.Root.Name, output.Count(len(verdict.Violations), "violation"))
	return !verdict.Valid, err
}
