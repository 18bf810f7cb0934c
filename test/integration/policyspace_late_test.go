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
	replicas.watches.holdWatches(t, "")
	s.moveNamespace(moves.Name, "full")
	s.waitInSpace(moves.Name, "full")
	s.waitCounted(moves.Name)

	replicas.useLate()
	err := s.chargePods(moves.Name, "1")
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	require.ErrorContains(t, err, codes.QuotaExceeded.AddTo(""))
	replicas.watches.releaseWatches()
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, s.client.Create(t.Context(), newPod(moves.Name, "b")), "exceeded quota in policyspace")
	})
	s.waitUsage("full", "pods: 1/1")
}

// The quota of a policy space is enforced once its status says so, also by a replica whose watches are late.
func TestALateReplicaEnforcesANewQuota(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s, replicas := newLateReplica(t)
	space := s.createSpace("full", "")
	ns := s.createNamespace("inside", s.inSpace("full"))
	s.waitInitialized(ns)
	require.NoError(t, s.createWithRetries(newPod(ns.Name, "a")))
	replicas.watches.holdWatches(t, "")
	require.NoError(t, s.client.Patch(t.Context(), space, mergePatch(`{"spec": {"quota": {"hard": {"pods": "1"}}}}`)))
	s.waitUsage("full", "pods: 1/1")
	s.waitCounted(ns.Name)

	replicas.useLate()
	require.ErrorContains(t, s.chargePods(ns.Name, "2"), codes.QuotaExceeded.AddTo(""))
	replicas.watches.releaseWatches()
	s.waitUsage("full", "pods: 1/1")
}

// chargePods writes the usage of a namespace after the creation of a pod, like the API server. That one tries again if
// it is asked to.
func (s spaceFixture) chargePods(namespace, used string) error {
	s.t.Helper()
	usage, err := s.getUsageQuota(s.t.Context(), namespace)
	require.NoError(s.t, err)
	usage.Status.Used = resourceList("pods", used)
	return s.impersonate(s.t, "system:apiserver", "system:masters").CoreV1().RESTClient().Put().
		Resource("resourcequotas").Namespace(usage.Namespace).Name(usage.Name).SubResource("status").Body(usage).
		MaxRetries(0).Do(s.t.Context()).Error()
}
