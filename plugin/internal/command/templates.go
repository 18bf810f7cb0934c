package command

import (
	"context"
	"errors"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/cluster"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// templates returns the cluster's templates as they would be once the files were applied. Without a cluster it returns
// those in the files.
func (s session) templates(ctx context.Context, c *cluster.Cluster, paths []string) ([]*v1alpha1.NamespaceTemplate, error) {
	var files source.Files
	var err error
	if len(paths) > 0 {
		if files, err = source.Read(paths, s.In); err != nil {
			return nil, err
		}
	}
	for _, skipped := range files.Skipped {
		s.note("skipped, as it is no NamespaceTemplate: %s", skipped)
	}
	if c == nil {
		return files.Templates, nil
	}
	stored, err := c.Templates(ctx)
	if errors.Is(err, cluster.NotInstalledError{}) && len(paths) > 0 {
		return files.Templates, nil
	}
	if err != nil {
		return nil, err
	}
	return source.Merge(stored, files.Templates), nil
}
