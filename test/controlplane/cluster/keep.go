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

// keeperCommand is how launch calls the keeper: the process whose life is the control plane's.
const keeperCommand = "keep"

// keep runs a control plane in dir until ctx is done. It inherits the lock as file 3.
func keep(ctx context.Context, dir string) error {
	unix.CloseOnExec(3) // the control plane's programs don't hold it
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

// serve lets the control plane be found for as long as it runs.
func serve(ctx context.Context, dir string, cluster *controlplane.Cluster) error {
	kubectl, kubeconfig := filepath.Join(dir, kubectlName), filepath.Join(dir, kubeconfigName)
	if err := os.Symlink(cluster.Kubectl, kubectl); err != nil {
		return err
	}
	defer os.Remove(kubectl)
	if err := os.Symlink(cluster.Kubeconfig, kubeconfig); err != nil { // last: it says that all is ready
		return err
	}
	defer os.Remove(kubeconfig)
	return cluster.Wait(ctx)
}
