package controlplane

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// New returns a control plane for a test, which is stopped when the test ends.
func New(tb testing.TB) *Cluster {
	tb.Helper()
	cluster, err := Start(tb.Context(), Options{OneCPU: true})
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
	started, err := Start(context.Background(), Options{OneCPU: true})
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
