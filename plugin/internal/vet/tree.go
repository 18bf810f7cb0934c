package vet

import (
	"fmt"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/engine/hierarchy"
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
	r.checkSize(root, loaded.Values)
	r.omit(root, loaded.ViolationCount-len(loaded.Violations), "violation")
	r.omit(root, loaded.WarningCount-len(loaded.Warnings), "warning")
	return root, nil
}

// defaultMemory is the default of the memory limit of nstpl-sync in MiB, of which its trees get nine tenths.
const defaultMemory = 384

// checkSize warns about a tree that nstpl-sync does not follow with its default memory limit.
func (r *result) checkSize(root string, values int) {
	needed := (values*hierarchy.BytesPerValue*10/9 + 1<<20 - 1) >> 20
	if needed > defaultMemory {
		r.Warnings = append(r.Warnings, finding{Path: root, Message: fmt.Sprintf("its manifests have %d values, of which a "+
			"field has two: nstpl-sync follows it only with a memory limit of at least %dMi, and its default is %dMi", values,
			needed, defaultMemory)})
	}
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
