// Package integration_test tests the operator as a process with only the permissions of its ServiceAccount, on a real
// control plane with the project's manifests. The tests read the operator's writes from the API server's audit log.
package integration_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"

	"nstpl.dev/nstpl/test/operator"
)

// sharedCluster is the cluster of all tests that do not disturb each other.
var sharedCluster *testCluster

// operatorBinary is the path of the operator's binary.
var operatorBinary string

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
	dir, err := os.MkdirTemp("", "nstpl-integration-")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	operatorBinary = filepath.Join(dir, "nstpl-operator")
	if err := operator.Build(context.Background(), dir, "nstpl-operator"); err != nil {
		return 1, err
	}
	sharedCluster, err = startTestCluster(context.Background())
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, sharedCluster.stop(), exclusive.stop()) }()
	if err := sharedCluster.applyManifests(context.Background()); err != nil {
		return 1, err
	}
	if err := sharedCluster.startOperator(context.Background(),
		"--exclude-namespaces=excluded-by-flag"); err != nil {
		return 1, err
	}
	if err := sharedCluster.checkVetting(context.Background()); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
