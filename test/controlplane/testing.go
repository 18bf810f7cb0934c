package controlplane

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// New returns a control plane for a test, which is stopped when the test ends. If $NSTPL_TEST_KUBECONFIG is the path of
// a kubeconfig, all tests share that cluster, with the objects of earlier tests.
func New(tb testing.TB) *Cluster {
	tb.Helper()
	cluster, err := forTests(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return cluster
}

// Main starts one control plane for all tests of a package, stores it at *cluster, runs the tests and returns the exit
// code. It is New for TestMain:
//
//	var cluster *controlplane.Cluster
//
//	func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &cluster)) }
func Main(m *testing.M, cluster **Cluster) int {
	started, err := forTests(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	*cluster = started
	code := m.Run()
	if err := started.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func forTests(ctx context.Context) (*Cluster, error) {
	kubeconfig := os.Getenv("NSTPL_TEST_KUBECONFIG")
	if kubeconfig == "" {
		return Start(ctx, Options{OneCPU: true})
	}
	kubectl, err := exec.LookPath("kubectl")
	if err != nil {
		return nil, fmt.Errorf("the cluster of $NSTPL_TEST_KUBECONFIG needs a kubectl in $PATH: %w", err)
	}
	return Existing(kubeconfig, kubectl)
}
