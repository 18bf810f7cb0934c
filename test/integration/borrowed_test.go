package integration_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/test/marks"
)

// lentClusters is the number of clusters that tests borrow. Most of the time, a borrower waits for a condition.
const lentClusters = 3

// lender lends clusters, each to one test at a time. It starts a cluster when a test first needs it.
type lender struct {
	// slots has an element for each borrower.
	slots chan struct{}
	idle  chan *testCluster
}

// exclusive lends the clusters of tests that would disturb others.
var exclusive = lender{slots: make(chan struct{}, lentClusters), idle: make(chan *testCluster, lentClusters)}

// borrowCluster waits for a cluster that no other test uses meanwhile, with an operator that has the flags. It is for
// tests that stop or restart the operator, or that change what concerns the whole cluster. When the test ends, the
// cluster is reset: nothing that the test did stays.
func borrowCluster(t *testing.T, flags ...string) *testCluster {
	t.Helper()
	cluster := exclusive.lend(t)
	if len(flags) > 0 {
		require.NoError(t, cluster.operator.Stop())
		require.NoError(t, cluster.startOperator(t.Context(), flags...))
	}
	return cluster
}

// borrowClusterWithoutOperator is borrowCluster without an operator: the configurations of its webhooks are as they are
// installed.
func borrowClusterWithoutOperator(t *testing.T) *testCluster {
	t.Helper()
	cluster := exclusive.lend(t)
	require.NoError(t, cluster.operator.Stop())
	require.NoError(t, cluster.removeWebhooks(t.Context()))
	return cluster
}

// removeWebhooks removes the webhooks that the operator has written.
func (cluster *testCluster) removeWebhooks(ctx context.Context) error {
	objects, err := installed()
	if err != nil {
		return err
	}
	var errs []error
	for _, object := range objects {
		if kind := object.GetKind(); kind != "ValidatingWebhookConfiguration" && kind != "MutatingWebhookConfiguration" {
			continue
		}
		configuration := &unstructured.Unstructured{}
		configuration.SetGroupVersionKind(object.GroupVersionKind())
		configuration.SetName(object.GetName())
		errs = append(errs, cluster.client.Patch(ctx, configuration,
			client.RawPatch(types.MergePatchType, []byte(`{"webhooks": null}`))))
	}
	return errors.Join(errs...)
}

// lend waits for a cluster and accepts it back when the test ends.
func (l lender) lend(t *testing.T) *testCluster {
	t.Helper()
	require.True(t, marks.IsThorough(t), "make test would start a second control plane for it: add marks.Thorough(t)")
	select {
	case l.slots <- struct{}{}:
	case <-t.Context().Done():
		require.NoError(t, t.Context().Err())
	}
	t.Cleanup(func() { <-l.slots })
	var cluster *testCluster
	select {
	case cluster = <-l.idle:
	default:
		cluster = startLentCluster(t)
	}
	position, err := cluster.audit.Now()
	require.NoError(t, err)
	t.Cleanup(func() { l.acceptBack(t, cluster, position) })
	return cluster
}

func startLentCluster(t *testing.T) *testCluster {
	t.Helper()
	cluster, err := startTestCluster(t.Context())
	require.NoError(t, err)
	start := func() error {
		if err := cluster.startOperator(t.Context()); err != nil {
			return err
		}
		if err := cluster.checkVetting(t.Context()); err != nil {
			return err
		}
		cluster.pristine, err = cluster.readSnapshot(t.Context())
		return err
	}
	if err := start(); err != nil {
		require.NoError(t, errors.Join(err, cluster.stop()))
	}
	return cluster
}

// manyNamespaces is a number of namespaces whose deletion takes about as much CPU time as the start of a cluster: 0.2 s
// for each, and 10 s.
const manyNamespaces = 50

// acceptBack resets the cluster of a test that has ended. It stops a cluster that cannot be reset, that has many new
// namespaces, or whose test has failed.
func (l lender) acceptBack(t *testing.T, cluster *testCluster, position int) {
	t.Helper()
	namespaces := &corev1.NamespaceList{}
	err := cluster.client.List(context.Background(), namespaces) // the test's context has ended
	assert.NoError(t, err)
	if t.Failed() || len(namespaces.Items) > preexistingNamespaces+manyNamespaces {
		assert.NoError(t, cluster.stop())
		return
	}
	if err := cluster.reset(context.Background(), resetTimeout); err != nil {
		t.Errorf("objects of the test remain: %v", err)
	}
	assert.NoError(t, cluster.audit.CheckDeletionsOf(operatorUser, position, mayBeDeleted))
	if t.Failed() {
		assert.NoError(t, cluster.stop())
		return
	}
	l.idle <- cluster
}

// stop stops the clusters that tests have returned.
func (l lender) stop() error {
	close(l.idle)
	var errs []error
	for cluster := range l.idle {
		errs = append(errs, cluster.stop())
	}
	return errors.Join(errs...)
}
