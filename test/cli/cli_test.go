// Package cli_test runs the plugin through kubectl, against a real control plane. Each file in testdata is a test
// script: see https://pkg.go.dev/github.com/rogpeppe/go-internal/testscript.
package cli_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/wait"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/controlplane"
	"nstpl.dev/nstpl/test/operator"
)

var update = flag.Bool("update", false, "update the expected output in the scripts")

// binDir is the directory with the built plugin and operator, and with kubectlScript as kubectl.
var binDir string

// kubectlScript runs the plugin as kubectl does. kubectl itself needs more CPU time to start than the plugin, and
// scripts run a thousand commands of the plugin. testdata/offline/completioninstall.txtar runs it with kubectl.
const kubectlScript = `#!/bin/sh
if [ "$1" = nstpl ]; then
	shift
	exec kubectl-nstpl "$@"
fi
exec "$KUBECTL_DIR/kubectl" "$@"
`

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "nstpl-cli-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := operator.Build(context.Background(), dir, "kubectl-nstpl", "nstpl-operator"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.Symlink("kubectl-nstpl", filepath.Join(dir, "kubectl_complete-nstpl")); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(kubectlScript), 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binDir = dir
	return m.Run()
}

// TestOffline runs the scripts that need no cluster.
func TestOffline(t *testing.T) {
	assets, err := controlplane.Build(t.Context(), controlplane.Version(), os.Stderr)
	require.NoError(t, err)
	runScripts(t, "offline", filepath.Join(assets, "kubectl"), "")
}

// TestCluster runs scripts in a cluster with the manifests of nstpl but without an operator.
func TestCluster(t *testing.T) {
	cluster := controlplane.New(t)
	install(t, cluster)
	runScripts(t, "cluster", cluster.Kubectl, cluster.Kubeconfig)
}

// TestOperator runs scripts in a cluster with a running operator.
func TestOperator(t *testing.T) {
	cluster := controlplane.New(t)
	install(t, cluster)
	startOperator(t, cluster)
	runScripts(t, "operator", cluster.Kubectl, cluster.Kubeconfig)
}

// TestNotInstalled runs scripts in a cluster without nstpl.
func TestNotInstalled(t *testing.T) {
	cluster := controlplane.New(t)
	runScripts(t, "notinstalled", cluster.Kubectl, cluster.Kubeconfig)
}

func runScripts(t *testing.T, dir, kubectl, kubeconfig string) {
	t.Helper()
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", dir),
		Setup: func(env *testscript.Env) error {
			env.Setenv("HOME", filepath.Join(env.WorkDir, "home"))
			env.Setenv("PATH", binDir+string(os.PathListSeparator)+os.Getenv("PATH"))
			env.Setenv("KUBECONFIG", kubeconfig)
			env.Setenv("PLUGIN", filepath.Join(binDir, "kubectl-nstpl"))
			env.Setenv("KUBECTL_DIR", filepath.Dir(kubectl))
			repository, err := filepath.Abs("../..")
			env.Setenv("REPOSITORY", repository)
			return err
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "eventually": eventually,
		},
		RequireExplicitExec: true,
		UpdateScripts:       *update,
	})
}

// exits implements the script command "exits CODE PROGRAM ARG...". It runs a program and checks its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARG...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	code := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		code = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if code != want {
		ts.Fatalf("exit code %d, not %d", code, want)
	}
}

// eventually implements the script command "eventually PROGRAM ARG...". It runs a program until it succeeds.
func eventually(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: eventually PROGRAM ARG...")
	}
	err := wait.PollUntilContextTimeout(context.Background(), 50*time.Millisecond, time.Minute, true,
		func(context.Context) (bool, error) { return ts.Exec(args[0], args[1:]...) == nil, nil })
	if err != nil {
		ts.Fatalf("%s does not succeed: %v", strings.Join(args, " "), err)
	}
}

// install applies the manifests, and waits until the API server enforces their admission policies.
func install(t *testing.T, cluster *controlplane.Cluster) {
	t.Helper()
	require.NoError(t, operator.Install(t.Context(), cluster))
	require.Eventually(t, func() bool {
		// The API server denies all namespaces until it has read the parameters of the policies.
		out, err := cluster.RunKubectl(t.Context(), "", "create", "namespace", "probe", "--dry-run=server", "-o",
			"jsonpath={.metadata.annotations}")
		return err == nil && strings.Contains(out, v1alpha1.CreatorAnnotation)
	}, time.Minute, 50*time.Millisecond)
}

// startOperator starts the operator, with the rights on Secrets and Services that some scripts need, and waits until it
// is ready. The end of the test stops it, and so does the function that is returned.
func startOperator(t *testing.T, cluster *controlplane.Cluster) (stop func() error) {
	t.Helper()
	kubectl(t, cluster, "apply", "-f", filepath.Join("testdata", "rights.yaml"))
	for _, resource := range []string{"secrets", "services"} {
		require.Eventually(t, func() bool {
			_, err := cluster.RunKubectl(t.Context(), "", "auth", "can-i", "delete", resource, "--all-namespaces",
				"--as", v1alpha1.OperatorUser)
			return err == nil
		}, time.Minute, 50*time.Millisecond)
	}
	dir := t.TempDir()
	kubeconfig := filepath.Join(dir, "operator.kubeconfig")
	require.NoError(t, operator.WriteKubeconfig(t.Context(), cluster, kubeconfig))
	started, err := operator.Start(operator.Options{
		Binary: filepath.Join(binDir, "nstpl-operator"), Dir: dir, Kubeconfig: kubeconfig,
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the operator's log:\n%s", started.Log(""))
		}
		_ = started.Kill()
	})
	require.NoError(t, started.AwaitReady(t.Context()))
	return started.Kill
}

func kubectl(t *testing.T, cluster *controlplane.Cluster, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := cluster.RunKubectl(ctx, "", args...)
	require.NoError(t, err)
}
