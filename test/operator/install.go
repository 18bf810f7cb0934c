package operator

import (
	"context"
	"path/filepath"

	"nstpl.dev/nstpl/test/controlplane"
)

// Install installs nstpl in a cluster, without an operator. It also applies files of the project, such as
// manifests/components/sync/rbac.yaml. It returns when nstpl's kinds can be used.
func Install(ctx context.Context, cluster *controlplane.Cluster, files ...string) error {
	root, err := controlplane.Root(ctx)
	if err != nil {
		return err
	}
	folder, _, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return err
	}
	args := []string{"apply", "--server-side", "--kustomize", filepath.Join(root, folder)}
	if _, err := cluster.RunKubectl(ctx, "", args...); err != nil {
		return err
	}
	for _, file := range files {
		if _, err := cluster.RunKubectl(ctx, "", "apply", "--filename", filepath.Join(root, file)); err != nil {
			return err
		}
	}
	_, err = cluster.RunKubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=1m", "crd", "--all")
	return err
}
