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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// leader returns the identity of the replica that leads; empty if none does.
func (s *scene) leader() string {
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

// otherLeader waits until another replica leads.
func (s *scene) otherLeader(than string) {
	s.t.Helper()
	s.eventuallyWithin(leaseTakeover, func(c *assert.CollectT) {
		now := s.leader()
		assert.NotEmpty(c, now)
		assert.NotEqual(c, than, now)
	})
}

// A leader that was suspended until another replica led writes nothing from then on: neither what it had planned nor
// what it learns then.
func TestASuspendedLeaderWritesNothing(t *testing.T) {
	t.Parallel()
	w, err := newWorld(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.end()) })
	through := newProxy(t, w, "suspended")
	require.NoError(t, w.startOperator(t.Context(), "--leader-elect=true", through.kubeconfig))
	suspended := w.operator
	t.Cleanup(func() { _ = suspended.Kill() })
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
	require.NoError(t, suspended.Signal(syscall.SIGSTOP))
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
	require.NoError(t, suspended.Signal(syscall.SIGCONT))
	select {
	case <-suspended.Exited:
	case <-time.After(30 * time.Second):
		require.Fail(t, "a replica whose lease was lost must end", suspended.Log(""))
	}
	require.NoError(t, suspended.Check())
	require.Empty(t, s.writesSince(point, through.sentBy))
	require.Contains(t, suspended.Log("so another replica may lead: nothing is written"), "error",
		"it had something to write")
}

// A replica that takes over does nothing before it knows what the leader knew: its watches may be late.
func TestALateStandbyUndoesNothing(t *testing.T) {
	t.Parallel()
	w, err := newWorld(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.end()) })
	require.NoError(t, w.startOperator(t.Context(), "--leader-elect=true"))
	s := newScene(t, w)
	const stage = "stage"
	for _, name := range []string{"one", "two"} {
		s.declare(name, configMap(name, "v"), deletes, func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = selector(stage, name)
		})
	}
	in := func(stageName string) func(*corev1.Namespace) {
		return func(ns *corev1.Namespace) { ns.Labels[stage] = stageName }
	}
	var all []*corev1.Namespace
	for _, short := range []string{"a", "b", "c"} {
		all = append(all, s.populatedNamespace(short, in("one")))
	}
	gone := s.populatedNamespace("gone", in("one"))
	through := newProxy(t, w, "late")
	late, err := startOperator(t.Context(), w, "--leader-elect=true", through.kubeconfig)
	require.NoError(t, err)
	t.Cleanup(func() { _ = late.Kill() })

	through.holdWatches()
	for _, ns := range all {
		s.patchNamespace(ns, `{"metadata": {"labels": {"stage": "two"}}}`)
	}
	for _, ns := range all {
		s.holds(ns, configMap("two", "v"))
		s.lacks(ns, configMap("one", "v"))
		s.populated(ns)
	}
	born := s.populatedNamespace("born", in("two"))
	s.delete(gone)
	s.eventually(func(c *assert.CollectT) {
		assert.True(c,
			apierrors.IsNotFound(s.client.Get(t.Context(), client.ObjectKeyFromObject(gone), &corev1.Namespace{})))
	})
	leader := s.leader()
	require.NoError(t, w.operator.Stop())
	w.operator = late
	s.otherLeader(leader)
	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, late.Log("nothing is done before the cache knows"), s.name("a"))
	})
	about := func(r request) bool { return through.sentBy(r) && strings.HasPrefix(r.ObjectRef.Namespace, s.id) }
	require.Empty(t, s.writesSince(0, about))
	through.letWatchesGoOn()
	after := s.populatedNamespace("after", in("two"))
	s.eventually(func(c *assert.CollectT) { // all of them were looked at
		looks, _, err := late.Metric(t.Context(), "controller_runtime_reconcile_total", `controller="namespace"`)
		assert.NoError(c, err)
		list := &corev1.NamespaceList{}
		assert.NoError(c, s.client.List(t.Context(), list))
		assert.GreaterOrEqual(c, int(looks), len(list.Items))
	})
	for _, r := range s.writesSince(0, about) {
		require.NotEqual(t, "delete", r.Verb, "%+v", r)
		// What this replica sees to be created it may take for new, and apply what is there.
		require.Contains(t, []string{born.Name, after.Name}, r.ObjectRef.Namespace, "%+v", r)
	}
	for _, ns := range append(all, born) {
		s.holds(ns, configMap("two", "v"))
	}
}
