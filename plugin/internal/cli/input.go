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
	ctx context.Context, c *cluster.Cluster, paths []string,
) ([]*v1alpha1.NamespaceTemplate, error) {
	var files []*v1alpha1.NamespaceTemplate
	if len(paths) > 0 {
		var skipped []string
		var err error
		if files, skipped, err = source.Read(paths, s.In); err != nil {
			return nil, err
		}
		for _, object := range skipped {
			s.Note("skipped %s: not a NamespaceTemplate", object)
		}
	}
	if c == nil {
		return files, nil
	}
	stored, err := c.Templates(ctx)
	if errors.Is(err, cluster.NotInstalledError{}) && len(paths) > 0 {
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
