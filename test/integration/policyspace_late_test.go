package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"nstpl.dev/nstpl/operator/codes"
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
	replicas.watches.holdWatches("")
	s.moveNamespace(moves.Name, "full")
	s.waitInSpace(moves.Name, "full")
	s.waitCounted(moves.Name)

	replicas.useLate()
	usage, err := s.getUsageQuota(t.Context(), moves.Name)
	require.NoError(t, err)
	usage.Status.Used = resourceList("pods", "1")
	err = s.impersonate(t, "system:apiserver", "system:masters").CoreV1().RESTClient().Put().Resource("resourcequotas").
		Namespace(usage.Namespace).Name(usage.Name).SubResource("status").Body(usage).MaxRetries(0).
		Do(t.Context()).Error() // like the API server for a pod, which tries again if it is asked to
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	require.ErrorContains(t, err, codes.QuotaExceeded.AddTo(""))
	replicas.watches.releaseWatches()
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, s.client.Create(t.Context(), newPod(moves.Name, "b")), "exceeded quota in policyspace")
	})
	s.waitUsage("full", "pods: 1/1")
}
