package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"nstpl.dev/nstpl/test/controlplane"
)

// installation is how the README installs the operator on a version of Kubernetes.
func installation(version string) (string, error) {
	folder, _, err := controlplane.Manifests(version)
	return "kubectl apply -k " + folder + "/", err
}

// shell runs commands like a user with kubectl, the plugin and a kubeconfig.
type shell struct {
	dir        string // where commands run
	bin        string // the folder of the plugin and the operator
	kubectl    string
	kubeconfig string
	env        []string // more variables of the environment
}

// cluster returns the cluster of the kubeconfig.
func (s shell) cluster() (*controlplane.Cluster, error) {
	return controlplane.Existing(s.kubeconfig, s.kubectl)
}

// run runs a command whose output, on both streams, goes to out.
func (s shell) run(ctx context.Context, command string, out io.Writer) error {
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir = s.dir
	cmd.Env = append(os.Environ(),
		"KUBECONFIG="+s.kubeconfig,
		fmt.Sprintf("PATH=%s:%s:%s", s.bin, filepath.Dir(s.kubectl), os.Getenv("PATH")),
	)
	cmd.Env = append(cmd.Env, s.env...)
	cmd.Stdout = out
	cmd.Stderr = out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	return nil
}

// play shows a command and runs it.
func (s shell) play(ctx context.Context, command string, out io.Writer) error {
	fmt.Fprintf(out, "\n$ %s\n", command)
	return s.run(ctx, command, out)
}
