package integration_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// resetTimeout is the longest time that a reset waits for finalizers and for the deletion of namespaces.
const resetTimeout = 2 * time.Minute

// recordTimeout is the time that the operator has to correct its records before a reset does.
const recordTimeout = 5 * time.Second

// reset makes a cluster as it was when its first snapshot was taken, with an operator that has no further flags. It
// returns an error that names what is left after the timeout.
func (cluster *testCluster) reset(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cluster.behindService = false
	if !cluster.isDefaultOperator() {
		if err := cluster.restartDefaultOperator(ctx); err != nil {
			return err
		}
	}
	start := time.Now()
	var left []difference
	var undone error
	err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		now, err := cluster.readSnapshot(ctx)
		if err != nil {
			return false, err
		}
		left = now.differencesSince(cluster.pristine)
		undone = cluster.undo(ctx, left, time.Since(start) > recordTimeout)
		if len(left) > 0 {
			return false, errors.Join(cluster.waitNamespacesGone(ctx, left), cluster.finishPods(ctx))
		}
		return true, nil
	})
	if err != nil {
		return errors.Join(err, joinDifferences(left), undone)
	}
	return nil
}

// isDefaultOperator reports whether only an operator without further flags runs.
func (cluster *testCluster) isDefaultOperator() bool {
	running := 0
	for _, replica := range cluster.replicas {
		if replica.Runs() {
			running++
		}
	}
	return running == 1 && cluster.operator == cluster.defaultOperator && cluster.operator.Runs()
}

// restartDefaultOperator ends all operators and starts one. Before that, it undoes changes of what an operator needs.
func (cluster *testCluster) restartDefaultOperator(ctx context.Context) error {
	for _, replica := range cluster.replicas {
		if err := replica.Kill(); err != nil {
			return err
		}
	}
	cluster.replicas = nil
	now, err := cluster.readSnapshot(ctx)
	if err != nil {
		return err
	}
	changes := slices.DeleteFunc(now.differencesSince(cluster.pristine), func(d difference) bool {
		return d.before == nil && !isAdmission(d.after)
	})
	_ = cluster.undo(ctx, changes, false) // what fails is tried again with the operator
	// The lease may name a replica that was killed.
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.OperatorLease,
	}}
	if err := client.IgnoreNotFound(cluster.client.Delete(ctx, lease)); err != nil {
		return err
	}
	if err := cluster.waitAggregatedRules(ctx); err != nil {
		return err
	}
	return cluster.startOperator(ctx)
}

// isAdmission reports whether an object may deny requests.
func isAdmission(object *unstructured.Unstructured) bool {
	return object.GroupVersionKind().Group == "admissionregistration.k8s.io"
}

// undo tries to undo the changes of a test. What fails, such as the deletion of an object that another one guards,
// succeeds later.
func (cluster *testCluster) undo(ctx context.Context, changes []difference, includesRecords bool) error {
	rank := func(d difference) int {
		switch {
		case isAdmission(d.object()):
			return 0
		case d.object().GetKind() == "Namespace":
			return 1
		default:
			return 2
		}
	}
	isTemplate := func(d difference) bool { return d.object().GetKind() == "NamespaceTemplate" }
	needsPermissions := slices.ContainsFunc(changes, isTemplate)
	slices.SortStableFunc(changes, func(a, b difference) int { return rank(a) - rank(b) })
	var errs []error
	for _, d := range changes {
		if isRecord(d.object()) && !includesRecords || isNewPermission(d) && needsPermissions {
			continue
		}
		if err := d.undo(ctx, cluster.client); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("%s: %w", d.key, err))
		}
	}
	return errors.Join(errs...)
}

// isNewPermission reports whether a test created a role or binding. The operator may need it to delete what a template
// declares.
func isNewPermission(d difference) bool {
	return d.before == nil && d.after.GroupVersionKind().Group == rbacv1.GroupName
}

func (d difference) object() *unstructured.Unstructured {
	if d.after != nil {
		return d.after
	}
	return d.before
}

func (d difference) undo(ctx context.Context, as client.Client) error {
	switch {
	case d.after == nil:
		missing := d.before.DeepCopy()
		missing.SetResourceVersion("")
		missing.SetUID("")
		return as.Create(ctx, missing)
	case d.before == nil && d.after.GetDeletionTimestamp() != nil:
		return nil
	case d.before == nil:
		if _, isProtected := d.after.GetAnnotations()[v1alpha1.DeletionProtectionAnnotation]; isProtected {
			if err := as.Patch(ctx, d.after.DeepCopy(), mergePatch(fmt.Sprintf(`{"metadata": {"annotations": {%q: null}}}`,
				v1alpha1.DeletionProtectionAnnotation))); err != nil {
				return err
			}
		}
		return as.Delete(ctx, d.after.DeepCopy(), client.PropagationPolicy(metav1.DeletePropagationBackground))
	default:
		original := d.before.DeepCopy()
		original.SetResourceVersion(d.after.GetResourceVersion())
		original.SetUID(d.after.GetUID())
		return as.Update(ctx, original)
	}
}

// finishPods deletes the pods that are being deleted. They may be bound to a node, and no kubelet ends them.
func (cluster *testCluster) finishPods(ctx context.Context) error {
	pods := &corev1.PodList{}
	if err := cluster.client.List(ctx, pods); err != nil {
		return err
	}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			continue
		}
		err := cluster.client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))
		if client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// waitNamespacesGone waits until no new namespace is left. It lists only namespaces.
func (cluster *testCluster) waitNamespacesGone(ctx context.Context, left []difference) error {
	isNewNamespace := func(d difference) bool { return d.before == nil && d.after.GetKind() == "Namespace" }
	if !slices.ContainsFunc(left, isNewNamespace) {
		return nil
	}
	err := wait.PollUntilContextTimeout(ctx, 250*time.Millisecond, 6*time.Second, true,
		func(ctx context.Context) (bool, error) {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(namespaceListKind)
			if err := cluster.client.List(ctx, list); err != nil {
				return false, err
			}
			return !slices.ContainsFunc(list.Items, func(ns metav1.PartialObjectMetadata) bool {
				return cluster.pristine["Namespace "+ns.Name] == nil
			}), nil
		})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return nil // something may have to be deleted first, or to be deleted again
	}
	return err
}

// TestResetReportsRemainingObjects checks that a reset deletes what a test created, restores what it changed, and names
// what it cannot delete.
func TestResetReportsRemainingObjects(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t)
	s := newScope(t, cluster)
	list := newConfigMap(v1alpha1.OperatorNamespace, v1alpha1.AutoOptOutConfigMap)
	require.NoError(t, s.client.Patch(t.Context(), list, mergePatch(`{"data": {"users": "robot"}}`)))
	s.createTemplate("defaults", configMap("a", "v"), deletesObjects)
	s.createPopulatedNamespace("populated")
	stuck := s.createNamespace("stuck")
	remove := s.addFinalizerToNamespace("stuck")
	s.grant(s.name("role"), userSubject("jane"), policyRule("get", "", "pods"))
	require.NoError(t, s.operator.Kill())

	// On a busy machine, one timeout may not be enough for what can be deleted.
	s.eventuallyWithin(resetTimeout, func(c *assert.CollectT) {
		err := cluster.reset(t.Context(), 20*time.Second)
		require.ErrorContains(c, err, "Namespace "+stuck.Name+" is being deleted, with the finalizers [nstpl.dev/test]")
		assert.NotContains(c, err.Error(), s.name("populated"))
		assert.NotContains(c, err.Error(), "ClusterRole")
		assert.NotContains(c, err.Error(), "ConfigMap")
	})
	remove()
	require.NoError(t, cluster.reset(t.Context(), resetTimeout))
}
