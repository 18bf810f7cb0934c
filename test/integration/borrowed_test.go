package integration_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// idle are the clusters that tests have returned.
var idle = make(chan *testCluster, 16)

// borrowCluster returns a cluster with an operator that no other test uses meanwhile. It is for tests that stop or
// restart the operator: a cluster of their own takes as long to start as many of them take. Tests before this one have
// left their objects in the cluster.
func borrowCluster(t *testing.T) *testCluster {
	t.Helper()
	select {
	case cluster := <-idle:
		returnLater(t, cluster)
		return cluster
	default:
	}
	cluster, err := startTestCluster(t.Context())
	require.NoError(t, err)
	returnLater(t, cluster)
	require.NoError(t, cluster.startOperator(t.Context()))
	require.NoError(t, cluster.checkVetting(t.Context()))
	return cluster
}

// returnLater returns a cluster at the end of a test, with an operator that runs. After a failure it stops the cluster.
func returnLater(t *testing.T, cluster *testCluster) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() || cluster.operator == nil {
			require.NoError(t, cluster.stop())
			return
		}
		select {
		case <-cluster.operator.Exited:
			require.NoError(t, cluster.startOperator(context.Background())) // the test's context has ended
		default:
		}
		idle <- cluster
	})
}

// stopIdle stops the clusters that tests have returned.
func stopIdle() error {
	close(idle)
	var errs []error
	for cluster := range idle {
		errs = append(errs, cluster.stop())
	}
	return errors.Join(errs...)
}
