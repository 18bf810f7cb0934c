// Package sync_test tests nstpl-sync as a process with only the permissions of its ServiceAccount, together with the
// operator, on a real control plane and with a real Git server.
package sync_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/operator"
)

// cluster is the cluster of all tests. Each test has its own trees.
var cluster testCluster

type testCluster struct {
	*controlplane.Cluster
	// client has the permissions of an administrator.
	client client.Client
	// operatorOptions start the operator, and syncOptions start nstpl-sync.
	operatorOptions, syncOptions operator.Options
	operator, sync               *operator.Process
}

// syncOptionsOf returns the options of another nstpl-sync, with a directory of its own.
func (c *testCluster) syncOptionsOf(t *testing.T) operator.Options {
	t.Helper()
	options := c.syncOptions
	options.Flags = []string{"--leader-elect=false", "--dir=" + t.TempDir()}
	return options
}

func TestMain(m *testing.M) {
	ctrl.SetLogger(zap.New()) // controller-runtime complains if clients have no logger
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "nstpl-sync-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := operator.Build(ctx, dir, "nstpl-operator", "nstpl-sync"); err != nil {
		return 1, err
	}
	if cluster.Cluster, err = controlplane.Start(ctx, controlplane.Options{OneCPU: true}); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if err := install(ctx); err != nil {
		return 1, err
	}
	kubeconfig := filepath.Join(dir, "operator.kubeconfig")
	if err := operator.WriteKubeconfig(ctx, cluster.Cluster, kubeconfig); err != nil {
		return 1, err
	}
	cluster.operatorOptions = operator.Options{
		Binary: filepath.Join(dir, "nstpl-operator"), Dir: dir, Kubeconfig: kubeconfig,
	}
	if cluster.operator, err = operator.Start(cluster.operatorOptions); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.operator.Stop()) }()
	if err := cluster.operator.AwaitReady(ctx); err != nil {
		return 1, err
	}
	cluster.syncOptions = operator.Options{
		Binary: filepath.Join(dir, "nstpl-sync"), Dir: dir, Kubeconfig: filepath.Join(dir, "sync.kubeconfig"),
		Flags: []string{"--leader-elect=false", "--dir=" + filepath.Join(dir, "commits")},
	}
	if err := operator.WriteKubeconfigOf(ctx, cluster.Cluster, "nstpl-sync",
		cluster.syncOptions.Kubeconfig); err != nil {
		return 1, err
	}
	if cluster.sync, err = operator.StartSync(cluster.syncOptions); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, cluster.sync.Stop()) }()
	return m.Run(), cluster.sync.AwaitReady(ctx)
}

// install applies the manifests, with the component, and returns when the kinds are served.
func install(ctx context.Context) error {
	if err := operator.Install(ctx, cluster.Cluster, "manifests/components/sync/rbac.yaml",
		"test/sync/testdata/flux.yaml"); err != nil {
		return err
	}
	if _, err := kubectl(ctx, "create", "serviceaccount", "nstpl-sync", "--namespace",
		v1alpha1.OperatorNamespace); err != nil {
		return err
	}
	var err error
	cluster.client, err = operator.NewClient(cluster.RESTConfig())
	return err
}

func kubectl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return cluster.RunKubectl(ctx, "", args...)
}
