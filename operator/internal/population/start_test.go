package population

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// The handler is registered while start lists the namespaces. A namespace that is created after the list and before the
// registration is an event of the handler's initial list only.
func TestEveryNamespaceIsQueuedAtTheStart(t *testing.T) {
	existing := func(name string, second int64, conditions ...corev1.NamespaceCondition) corev1.Namespace {
		return corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.Unix(second, 0)},
			Status:     corev1.NamespaceStatus{Conditions: conditions},
		}
	}
	populated := corev1.NamespaceCondition{Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue}
	listed := []corev1.Namespace{existing("a", 2), existing("b", 1), existing("done", 0, populated)}
	r := &Namespaces{Queue: queue.New(&backoff.Queues{})}
	defer r.Queue.ShutDown()
	for _, ns := range append(listed, existing("missed", 3)) {
		r.handler().Create(t.Context(), event.CreateEvent{Object: &ns, IsInInitialList: true}, nil)
	}
	r.queueWaiting(listed)
	require.Eventually(t, func() bool { return r.Queue.Len() == 4 }, time.Minute, time.Millisecond)
	var order []string
	for range 4 {
		item, _ := r.Queue.Get()
		order = append(order, item.Name)
		r.Queue.Done(item)
	}
	require.Equal(t, []string{"b", "a", "missed", "done"}, order, "those that wait are in the order of their creation")
}

// After a start, thousands of namespaces are checked. A user of one that lacks a RoleBinding does not wait for them.
func TestNamespacesThatLackObjectsAreQueuedFirst(t *testing.T) {
	r := &Namespaces{Queue: queue.New(&backoff.Queues{})}
	defer r.Queue.ShutDown()
	grant := populate.Change{
		Kind: rbacv1.SchemeGroupVersion.WithKind("RoleBinding"), Name: "creator", Template: "owners", Populated: true,
	}
	record := populate.ExistingObjects(populate.Plan{
		Declared: populate.Declared{Namespace: &corev1.Namespace{}}, Changes: []populate.Change{grant},
	}, populate.Result{})
	var all []*corev1.Namespace
	for _, name := range []string{"whole", "another", "lacking", "last"} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			v1alpha1.ExistingAnnotation: record,
		}}, Status: corev1.NamespaceStatus{Conditions: []corev1.NamespaceCondition{{
			Type: v1alpha1.NamespacePopulated, Status: corev1.ConditionTrue,
		}}}}
		r.handler().Create(t.Context(), event.CreateEvent{Object: ns, IsInInitialList: true}, nil)
		all = append(all, ns)
	}
	queueLacking(r.Queue, all, func(namespace string) []populate.ObjectID {
		if namespace == "lacking" {
			return nil
		}
		return []populate.ObjectID{grant.ID()}
	})
	require.Eventually(t, func() bool { return r.Queue.Len() == 4 }, time.Minute, time.Millisecond)
	item, _ := r.Queue.Get()
	require.Equal(t, "lacking", item.Name)
}

// The spec of a template may not be accepted yet when the operator starts. How it is rolled out is not in its
// revisions, and decides whether namespaces keep the grants of earlier ones.
func TestATemplateThatIsNotAcceptedHasItsNewestRevision(t *testing.T) {
	stored := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "t", Generation: 4, DeletionTimestamp: new(metav1.Now())},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Rollout: &v1alpha1.Rollout{Revocation: v1alpha1.RevokeWithRollout}, DeletionPolicy: v1alpha1.DeletionDelete,
		},
		Status: v1alpha1.NamespaceTemplateStatus{Revisions: []v1alpha1.TemplateRevision{
			{Name: "t-3", Generation: 3}, {Name: "t-2", Generation: 2}, {Name: "t-1", Generation: 1},
		}},
	}
	specs := map[string]*v1alpha1.NamespaceTemplateSpec{"t-1": {}, "t-2": {DeletionPolicy: v1alpha1.DeletionOrphan}}
	accepted := acceptedBefore(stored, specs)
	require.EqualValues(t, 2, accepted.Generation)
	require.Equal(t, v1alpha1.DeletionOrphan, accepted.Spec.DeletionPolicy)
	require.True(t, accepted.Spec.Rollout.KeepsRevoked())
	require.Nil(t, accepted.DeletionTimestamp)
	require.Nil(t, acceptedBefore(stored, nil))
}
