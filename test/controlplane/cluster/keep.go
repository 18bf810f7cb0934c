package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"nstpl.dev/nstpl/test/controlplane"
)

// keeperCommand is the command by which launch starts the keeper, the process that owns the control plane.
const keeperCommand = "keep"

// keep runs a control plane in dir until ctx is done. It inherits the lock as file 3.
func keep(ctx context.Context, dir string) error {
	unix.CloseOnExec(3) // the control plane's programs must not inherit the lock
	lock := lockFile{os.NewFile(3, "lock")}
	defer lock.Close()
	if err := lock.sign(controlplane.Version()); err != nil {
		return fmt.Errorf("the keeper is started by `up`, not by hand: %w", err)
	}
	cluster, err := controlplane.Start(ctx, controlplane.Options{Dir: filepath.Join(dir, dataName)})
	if err != nil {
		return err
	}
	err = serve(ctx, dir, cluster)
	return errors.Join(err, cluster.Stop())
}

// serve creates the links to the control plane, and removes them when it ends.
func serve(ctx context.Context, dir string, cluster *controlplane.Cluster) error {
	kubectl, kubeconfig := filepath.Join(dir, kubectlName), filepath.Join(dir, kubeconfigName)
	if err := os.Symlink(cluster.Kubectl, kubectl); err != nil {
		return err
	}
	defer os.Remove(kubectl)
	// last, because the link means that the control plane is ready
	if err := os.Symlink(cluster.Kubeconfig, kubeconfig); err != nil {
		return err
	}
	defer os.Remove(kubeconfig)
	return cluster.Wait(ctx)
}
