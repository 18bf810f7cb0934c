package integration_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// leader returns the identity of the replica that leads; empty if none does.
func (s *scene) leader() string {
	s.t.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.OperatorLease}, lease))
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// otherLeader waits until another replica leads.
func (s *scene) otherLeader(than string) {
	s.t.Helper()
	s.eventuallyWithin(leaseTakeover, func(c *assert.CollectT) {
		now := s.leader()
		assert.NotEmpty(c, now)
		assert.NotEqual(c, than, now)
	})
}

// A leader that was suspended until another replica led writes nothing from then on: neither what it had planned nor what it learns then.
func TestASuspendedLeaderWritesNothing(t *testing.T) {
	t.Parallel()
	w, err := newWorld(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.end()) })
	through := newProxy(t, w, "suspended")
	require.NoError(t, w.startOperator(t.Context(), "--leader-elect=true", through.kubeconfig))
	suspended := w.operator
	t.Cleanup(func() { _ = suspended.cmd.Process.Kill() })
	s := newScene(t, w)
	template := s.declare("defaults", configMap("a", "before"))
	var all []*corev1.Namespace
	for _, short := range []string{"a", "b", "c"} {
		all = append(all, s.populatedNamespace(short))
	}
	w.operator, err = startOperator(t.Context(), w, "--leader-elect=true")
	require.NoError(t, err)
	require.NotEmpty(t, s.writesSince(0, through.sentBy))

	leader := s.leader()
	require.NoError(t, suspended.cmd.Process.Signal(syscall.SIGSTOP))
	s.otherLeader(leader)
	s.eventually(func(c *assert.CollectT) { // once the API server asks the new leader
		old := &v1alpha1.NamespaceTemplate{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), old))
		changed := old.DeepCopy()
		changed.Spec.Templates = raw(t, configMap("b", "after"))
		assert.NoError(c, s.client.Patch(t.Context(), changed, client.MergeFrom(old)))
	})
	for _, ns := range all {
		s.holds(ns, configMap("b", "after"))
		s.lacks(ns, configMap("a", "before"))
	}
	point := s.now()
	require.NoError(t, suspended.cmd.Process.Signal(syscall.SIGCONT))
	select {
	case <-suspended.exited:
	case <-time.After(30 * time.Second):
		require.Fail(t, "a replica whose lease was lost must end", suspended.logOf(""))
	}
	require.NoError(t, suspended.check())
	require.Empty(t, s.writesSince(point, through.sentBy))
	require.Contains(t, suspended.logOf("so another replica may lead: nothing is written"), "error", "it had something to write")
}
