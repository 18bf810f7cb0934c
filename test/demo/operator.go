package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/operator"
)

// startOperator starts the operator with the rights of its ServiceAccount and no others, and with more flags. It
// returns when the operator is ready and new namespaces are stamped. The operator outlives this process, and ends with
// the cluster: it can't keep its lease then.
func startOperator(ctx context.Context, sh shell, log string, more ...string) (*operator.Process, error) {
	cluster, err := sh.cluster()
	if err != nil {
		return nil, err
	}
	kubeconfig := filepath.Join(filepath.Dir(log), "operator.kubeconfig")
	if err := operator.WriteKubeconfig(ctx, cluster, kubeconfig); err != nil {
		return nil, err
	}
	started, err := operator.Start(operator.Options{
		Binary: filepath.Join(sh.bin, "nstpl-operator"), Log: log, Kubeconfig: kubeconfig,
		Flags: append([]string{"--leader-elect"}, more...), Outlives: true,
	})
	if err != nil {
		return nil, err
	}
	if err := started.AwaitReady(ctx); err != nil {
		return nil, err
	}
	return started, awaitPolicies(ctx, sh)
}

// awaitPolicies waits until the API server enforces the admission policies.
func awaitPolicies(ctx context.Context, sh shell) error {
	const probe = "kubectl create namespace probe --dry-run=server --output=yaml"
	var said bytes.Buffer
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, time.Minute, true,
		func(ctx context.Context) (bool, error) {
			said.Reset()
			return sh.run(ctx, probe, &said) == nil && strings.Contains(said.String(), v1alpha1.CreatorAnnotation), nil
		})
	if err != nil {
		return fmt.Errorf("the admission policies are not enforced: %w: %s", err, &said)
	}
	return nil
}
