package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"nstpl.dev/nstpl/test/controlplane"
)

// The contents of the folder, besides the lock.
const (
	dataName       = "data"       // the control plane's own folder
	kubeconfigName = "kubeconfig" // a link, which exists when the control plane is ready
	kubectlName    = "kubectl"    // a link
	logName        = "keeper.log" // the log of the keeper
)

const poll = 100 * time.Millisecond

// up starts a control plane in dir unless one is running there, and writes shell commands that use it to out.
func up(ctx context.Context, dir string, out io.Writer) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	lock, err := openLock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	version := controlplane.Version()
	free, err := lock.tryLock()
	if err != nil {
		return err
	}
	if free {
		if err := launch(ctx, dir, lock, version); err != nil {
			return err
		}
	}
	if err := awaitReady(ctx, dir, version); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "kubernetes %s is running; it has no nodes, so pods stay pending\nits kubectl: %s\n",
		version, filepath.Join(dir, kubectlName))
	fmt.Fprintf(out, "export KUBECONFIG=%s\n", shellQuote(filepath.Join(dir, kubeconfigName)))
	return nil
}

// launch starts the keeper of a new control plane, which inherits the lock.
func launch(ctx context.Context, dir string, lock lockFile, version string) error {
	if err := lock.sign(version); err != nil {
		return err
	}
	if err := removeRemains(dir); err != nil {
		return err
	}
	if _, err := controlplane.Build(ctx, version, os.Stderr); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(dir, logName))
	if err != nil {
		return err
	}
	defer log.Close()
	keeper := exec.Command(self, keeperCommand, dir)
	keeper.Stdout = log
	keeper.Stderr = log
	keeper.ExtraFiles = []*os.File{lock.File}
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // so that it does not end with make and its terminal
	if err := keeper.Start(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "starting kubernetes %s\n", version)
	return lock.Close()
}

// awaitReady waits until the control plane that holds the lock is ready.
func awaitReady(ctx context.Context, dir, version string) error {
	lock, err := openLock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	for {
		free, err := lock.tryLock()
		if err != nil {
			return err
		}
		if free {
			log, _ := os.ReadFile(filepath.Join(dir, logName)) // best effort, because another error is reported already
			return fmt.Errorf("the control plane has not started: %s", log)
		}
		_, running, err := lock.holder()
		if err != nil {
			return err
		}
		if running != "" && running != version {
			return fmt.Errorf("kubernetes %s is running here: end it with `make cluster-down` to start %s", running,
				version)
		}
		if _, err := os.Stat(filepath.Join(dir, kubeconfigName)); err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(poll):
		}
	}
}

// removeRemains deletes the files of an earlier control plane. They exist only after a crash or a reboot.
func removeRemains(dir string) error {
	for _, name := range []string{kubeconfigName, kubectlName, logName, dataName} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// shellQuote quotes a path for a shell if necessary.
func shellQuote(path string) string {
	if !strings.ContainsAny(path, " \t\n'\"\\$`!&;|<>()*?[]{}#~") {
		return path
	}
	return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'"
}
