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

// TemplateFiles returns the templates in files. It prints a note for each document that is not a template.
func (s Session) TemplateFiles(from source.Filenames) ([]*v1alpha1.NamespaceTemplate, error) {
	if from.IsEmpty() {
		return nil, nil
	}
	files, skipped, err := source.Read(from, s.In)
	for _, note := range skipped {
		s.Note("skipped %s", note)
	}
	return files, err
}

// WithFiles returns the templates of the cluster as they would be if the templates of files were applied, and as they
// are stored. The cluster may lack the kind of templates if there are files.
func WithFiles(
	ctx context.Context, c *cluster.Cluster, files []*v1alpha1.NamespaceTemplate,
) (merged, stored []*v1alpha1.NamespaceTemplate, err error) {
	stored, err = c.Templates(ctx)
	if errors.Is(err, cluster.NotInstalledError{}) && len(files) > 0 {
		return files, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	return source.Merge(stored, files), stored, nil
}

// ValidTree reads the tree of policies in a directory and prints its warnings. It returns an error if the tree has
// violations.
func (s Session) ValidTree(dir string) (*hierarchy.Tree, error) {
	result, err := source.Tree(dir)
	if err != nil {
		return nil, err
	}
	if n := result.ViolationCount; n > 0 {
		return nil, fmt.Errorf("%s has %s: run 'kubectl nstpl vet %s' for details", result.Tree.Root.Name,
			output.Count(n, "violation"), dir)
	}
	for _, warning := range result.Warnings {
		s.Note("Warning: %s: %s", output.Position(warning.Path, warning.Line), warning.Message)
	}
	return result.Tree, nil
}
