package cli

import (
	"context"
	"errors"
	"fmt"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// Templates returns the templates of the cluster as they would be if the files were applied. If c is nil, it returns
// the templates in the files. It prints a note for each document that is not a template.
func (s Session) Templates(
	ctx context.Context, c *cluster.Cluster, from source.Filenames,
) ([]*v1alpha1.NamespaceTemplate, error) {
	var files []*v1alpha1.NamespaceTemplate
	if !from.IsEmpty() {
		var skipped []string
		var err error
		files, skipped, err = source.Read(from, s.In)
		for _, note := range skipped {
			s.Note("skipped %s", note)
		}
		if err != nil {
			return nil, err
		}
	}
	if c == nil {
		return files, nil
	}
	stored, err := c.Templates(ctx)
	if errors.Is(err, cluster.NotInstalledError{}) && !from.IsEmpty() {
		return files, nil
	}
	if err != nil {
		return nil, err
	}
	return source.Merge(stored, files), nil
}

// ValidTree reads the tree of policies in a directory and prints its warnings. It returns an error if the tree has
// violations.
func (s Session) ValidTree(dir string) (*hierarchy.Tree, error) {
	result, err := source.Tree(dir)
	if err != nil {
		return nil, err
	}
	if n := len(result.Violations); n > 0 {
		return nil, fmt.Errorf("%s has %s: run 'kubectl nstpl vet %s' for details", result.Tree.Root.Name,
			output.Count(n, "violation"), dir)
	}
	for _, warning := range result.Warnings {
		s.Note("Warning: %s: %s", output.Position(warning.Path, warning.Line), warning.Message)
	}
	return result.Tree, nil
}
