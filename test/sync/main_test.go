// Package sync_test tests nstpl-sync as a process with only the permissions of its ServiceAccount, together with the
// operator, on a real control plane and with a real Git server.
package sync_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
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
	if err := build(dir); err != nil {
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

// build compiles the programs, with the race detector if the tests are compiled with it.
func build(dir string) error {
	args := []string{"build", "-o", dir}
	if info, ok := debug.ReadBuildInfo(); ok &&
		slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	args = append(args, "nstpl.dev/nstpl/cmd/nstpl-operator", "nstpl.dev/nstpl/cmd/nstpl-sync")
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("build the programs: %w\n%s", err, out)
	}
	return nil
}

// install applies the manifests, with the component, and returns when the kinds are served.
func install(ctx context.Context) error {
	folder, _, err := controlplane.Manifests(controlplane.Version())
	if err != nil {
		return err
	}
	for _, args := range [][]string{
		{"apply", "--kustomize", filepath.Join("../..", folder)},
		{"apply", "--filename", "../../manifests/components/sync/rbac.yaml"},
		{"apply", "--filename", "testdata/flux.yaml"},
		{"create", "serviceaccount", "nstpl-sync", "--namespace", v1alpha1.OperatorNamespace},
		{"wait", "--for=condition=Established", "--timeout=1m", "crd", "--all"},
	} {
		if _, err := kubectl(ctx, args...); err != nil {
			return err
		}
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return err
	}
	cluster.client, err = client.New(cluster.RESTConfig(), client.Options{Scheme: scheme})
	return err
}

func kubectl(ctx context.Context, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, cluster.Kubectl, append([]string{"--kubeconfig", cluster.Kubeconfig}, args...)...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}
