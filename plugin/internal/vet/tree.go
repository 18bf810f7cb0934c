package vet

import (
	"slices"
	"strings"

	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// checkTree checks the tree in a directory. It returns the name of the root.
func (r *result) checkTree(dir string) (root string, err error) {
	loaded, err := source.Tree(dir)
	if err != nil {
		return "", err
	}
	for _, violation := range loaded.Violations {
		r.Violations = append(r.Violations, finding{
			Rule: violation.Rule, Path: violation.Path, Line: violation.Line, Message: violation.Message,
			Remedy: violation.Remedy,
		})
	}
	for _, warning := range loaded.Warnings {
		r.Warnings = append(r.Warnings, finding{Path: warning.Path, Line: warning.Line, Message: warning.Message})
	}
	root = loaded.Tree.Root.Name
	r.omit(root, loaded.ViolationCount-len(loaded.Violations), "violation")
	r.omit(root, loaded.WarningCount-len(loaded.Warnings), "warning")
	return root, nil
}

// omit warns about violations or warnings that are not listed.
func (r *result) omit(root string, count int, noun string) {
	if count > 0 {
		r.Warnings = append(r.Warnings, finding{
			Path:    root,
			Message: output.Count(count, "more "+noun) + ": correct those that are listed, and run vet again",
		})
	}
}

// hasTemplates reports whether templates are in the directory of a tree, where none belong: the directory may have
// templates and no tree.
func (r *result) hasTemplates() bool {
	return slices.ContainsFunc(r.Violations, func(violation finding) bool {
		return strings.HasPrefix(violation.Message, "NamespaceTemplate")
	})
}
