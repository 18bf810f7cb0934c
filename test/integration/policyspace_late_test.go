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
	s, replicas := newLateReplica(t)
	s.createSpace("full", "", "pods", "1")
	inside, moves := s.createNamespace("inside", s.inSpace("full")), s.createNamespace("moves")
	s.waitCounted(inside.Name)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, s.client.Create(t.Context(), newPod(inside.Name, "a"))) })
	s.waitUsage("full", "pods: 1/1")
	replicas.watches.holdWatches()
	s.moveNamespace(moves.Name, "full")
	s.waitInSpace(moves.Name, "full")
	s.waitCounted(moves.Name)

	replicas.useLate()
	require.Error(t, s.client.Create(t.Context(), newPod(moves.Name, "b")))
	replicas.watches.releaseWatches()
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, s.client.Create(t.Context(), newPod(moves.Name, "b")), "exceeded quota in policyspace")
	})
	s.waitUsage("full", "pods: 1/1")
}
