package integration_test

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// leaseHolder returns the identity of the leading replica, or an empty string if no replica leads.
func leaseHolder(s *testScope) string {
	s.t.Helper()
	lease := &coordinationv1.Lease{}
	require.NoError(s.t,
		s.client.Get(s.t.Context(),
			client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.OperatorLease}, lease))
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// waitOtherLeaseHolder waits until another replica leads.
func waitOtherLeaseHolder(s *testScope, than string) {
	s.t.Helper()
	s.eventuallyWithin(leaseTakeover, func(c *assert.CollectT) {
		now := leaseHolder(s)
		assert.NotEmpty(c, now)
		assert.NotEqual(c, than, now)
	})
}

// A leader that was suspended until another replica led writes nothing afterwards.
func TestSuspendedLeaderWritesNothing(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowClusterWithoutOperator(t)
	through := newProxy(t, cluster, "suspended")
	require.NoError(t, cluster.startOperator(t.Context(), "--leader-elect=true", through.kubeconfig))
	suspended := cluster.operator
	t.Cleanup(func() { _ = suspended.Kill() })
	s := newScope(t, cluster)
	template := s.createTemplate("defaults", configMap("a", "before"))
	var all []*corev1.Namespace
	for _, short := range []string{"a", "b", "c"} {
		all = append(all, s.createPopulatedNamespace(short))
	}
	standby, err := cluster.startReplica(t.Context(), "--leader-elect=true")
	require.NoError(t, err)
	cluster.operator = standby
	require.NotEmpty(t, s.writesSince(0, through.sentBy))

	leader := leaseHolder(s)
	require.NoError(t, suspended.Signal(syscall.SIGSTOP))
	waitOtherLeaseHolder(s, leader)
	s.eventually(func(c *assert.CollectT) { // until the API server calls the webhooks of the new leader
		old := &v1alpha1.NamespaceTemplate{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), old))
		changed := old.DeepCopy()
		changed.Spec.Templates = rawObjects(t, configMap("b", "after"))
		assert.NoError(c, s.client.Patch(t.Context(), changed, client.MergeFrom(old)))
	})
	for _, ns := range all {
		s.waitPresent(ns, configMap("b", "after"))
		s.waitAbsent(ns, configMap("a", "before"))
	}
	point := s.auditPosition()
	require.NoError(t, suspended.Signal(syscall.SIGCONT))
	select {
	case <-suspended.Exited:
	case <-time.After(30 * time.Second):
		require.Fail(t, "a replica that has lost its lease must end", suspended.Log(""))
	}
	require.NoError(t, suspended.Check())
	require.Empty(t, s.writesSince(point, through.sentBy))
	require.Contains(t, suspended.Log("so another replica may be the leader"), "error",
		"the replica must have had something to write")
}

// A new leader writes nothing until its caches, which may be late, contain everything that the previous leader knew.
func TestStandbyWithLateWatchesUndoesNothing(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t, "--leader-elect=true")
	s := newScope(t, cluster)
	const stage = "stage"
	for _, name := range []string{"one", "two"} {
		s.createTemplate(name, configMap(name, "v"), deletesObjects, func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = selectLabel(stage, name)
		})
	}
	in := func(stageName string) func(*corev1.Namespace) {
		return func(ns *corev1.Namespace) { ns.Labels[stage] = stageName }
	}
	var all []*corev1.Namespace
	for _, short := range []string{"a", "b", "c"} {
		all = append(all, s.createPopulatedNamespace(short, in("one")))
	}
	gone := s.createPopulatedNamespace("gone", in("one"))
	through := newProxy(t, cluster, "late")
	late, err := cluster.startReplica(t.Context(), "--leader-elect=true", through.kubeconfig)
	require.NoError(t, err)
	t.Cleanup(func() { _ = late.Kill() })

	through.holdWatches(t, "")
	for _, ns := range all {
		s.patchNamespace(ns, `{"metadata": {"labels": {"stage": "two"}}}`)
	}
	for _, ns := range all {
		s.waitPresent(ns, configMap("two", "v"))
		s.waitAbsent(ns, configMap("one", "v"))
		s.waitPopulated(ns)
	}
	born := s.createPopulatedNamespace("born", in("two"))
	s.delete(gone)
	s.waitDeleted(gone)
	leader := leaseHolder(s)
	require.NoError(t, cluster.operator.Stop())
	cluster.operator = late
	waitOtherLeaseHolder(s, leader)
	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, late.Log("waiting until the cache has the objects"), s.name("a"))
	})
	about := func(r request) bool { return through.sentBy(r) && strings.HasPrefix(r.ObjectRef.Namespace, s.id) }
	require.Empty(t, s.writesSince(0, about))
	through.releaseWatches()
	after := s.createPopulatedNamespace("after", in("two"))
	s.eventually(func(c *assert.CollectT) { // until all namespaces were reconciled
		looks, _, err := late.Metric(t.Context(), "controller_runtime_reconcile_total", `controller="namespace"`)
		assert.NoError(c, err)
		list := &corev1.NamespaceList{}
		assert.NoError(c, s.client.List(t.Context(), list))
		assert.GreaterOrEqual(c, int(looks), len(list.Items))
	})
	for _, r := range s.writesSince(0, about) {
		require.NotEqual(t, "delete", r.Verb, "%+v", r)
		// The late replica may apply the objects of namespaces again whose creation it sees only now.
		require.Contains(t, []string{born.Name, after.Name}, r.ObjectRef.Namespace, "%+v", r)
	}
	for _, ns := range append(all, born) {
		s.waitPresent(ns, configMap("two", "v"))
	}
}
