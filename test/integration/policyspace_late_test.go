package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/test/marks"
)

// A replica whose watches are late does not know that a namespace has moved into a policy space. It lets nothing pass
// there that the policy space has no room for.
func TestALateReplicaCountsInTheSpaceToWhichANamespaceMoved(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowClusterWithoutOperator(t)
	service := newService(t, cluster)
	first, err := cluster.startReplica(t.Context(), "--leader-elect=true")
	require.NoError(t, err)
	cluster.operator = first
	service.Use(first.Webhooks)
	through := newProxy(t, cluster, "late")
	late, err := cluster.startReplica(t.Context(), "--leader-elect=true", through.kubeconfig)
	require.NoError(t, err)
	t.Cleanup(func() { _ = late.Kill() })
	s := newScope(t, cluster)
	s.createSpace("full", "", "pods", "1")
	inside, moves := s.createNamespace("inside", s.inSpace("full")), s.createNamespace("moves")
	s.waitCounted(inside.Name)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, s.client.Create(t.Context(), newPod(inside.Name, "a"))) })
	s.waitUsage("full", "pods: 1/1")
	through.holdWatches()
	s.moveNamespace(moves.Name, "full")
	s.waitInSpace(moves.Name, "full")
	s.waitCounted(moves.Name)

	service.Use(late.Webhooks)
	require.Error(t, s.client.Create(t.Context(), newPod(moves.Name, "b")))
	through.releaseWatches()
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, s.client.Create(t.Context(), newPod(moves.Name, "b")), "exceeded quota in policyspace")
	})
	s.waitUsage("full", "pods: 1/1")
}
