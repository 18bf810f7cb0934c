package controlplane

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// New starts a control plane for one test and stops it when the test ends.
func New(t testing.TB) *Cluster {
	t.Helper()
	cluster, err := Start(t.Context(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// Main runs the tests of a package with one control plane for them all, at *cluster, and returns the exit code:
//
//	var cluster *controlplane.Cluster
//
//	func TestMain(m *testing.M) { os.Exit(controlplane.Main(m, &cluster)) }
func Main(m *testing.M, cluster **Cluster) int {
	started, err := Start(context.Background(), Options{})
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
