package constraint

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/scc"
)

// allocatedKey is, in the ConfigMap of allocations, the number of the block that is given next.
const allocatedKey = "next"

// requeueSoon is when namespaces that changed meanwhile are reconciled again.
const requeueSoon = 250 * time.Millisecond

// allocationWrites are under way at a time.
const allocationWrites = 16

// Allocations gives namespaces their blocks of user ids and SELinux levels, while there are SecurityContextConstraints.
// What is given is written down before it is: another leader goes on from there, and no block is given twice.
type Allocations struct {
	Client     client.Client
	ConfigMaps corev1client.ConfigMapInterface
	Recorder   events.EventRecorder
	Pool       scc.Pool
	// Exempt are given nothing.
	Exempt []string
	// Constraints are those of the cache. Without any, namespaces are given nothing.
	Constraints *constraints
	// Caches are as new as the leadership before anything is done.
	Caches *leadership.Caches
	// Queues makes the controller's queue.
	Queues *backoff.Queues

	// given is what the cache may not show yet, by namespace.
	given map[types.UID]map[string]string
}

// SetupWithManager has all namespaces looked at together as they come, and as their annotations change.
func (r *Allocations) SetupWithManager(mgr ctrl.Manager) error {
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("allocation").
		Watches(&corev1.Namespace{}, enqueue, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				return allocationOf(e.ObjectOld) != allocationOf(e.ObjectNew)
			},
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		WatchesRawSource(source.Func(func(_ context.Context,
			queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.Constraints.changes.Listen(func() { queue.Add(reconcile.Request{}) })
			return nil
		})).
		WithOptions(controller.Options{NewQueue: r.Queues.New}).
		Complete(r.Caches.Before(r))
}

// allocationKeys are the annotations that a namespace is given together.
var AllocationKeys = []string{
	v1alpha1.UIDRangeAnnotation, v1alpha1.SupplementalGroupsAnnotation, v1alpha1.MCSAnnotation,
}

func allocationOf(ns client.Object) [3]string {
	annotations := ns.GetAnnotations()
	return [3]string{
		annotations[v1alpha1.UIDRangeAnnotation], annotations[v1alpha1.SupplementalGroupsAnnotation],
		annotations[v1alpha1.MCSAnnotation],
	}
}

// Reconcile gives every namespace what it lacks.
func (r *Allocations) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if constraints, err := r.Constraints.get(ctx); err != nil || len(constraints) == 0 {
		return reconcile.Result{}, err
	}
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	namespaces := map[string]*corev1.Namespace{}
	var holders []scc.Holder
	seen := map[types.UID]map[string]string{}
	for i := range list.Items {
		ns := &list.Items[i]
		if slices.Contains(r.Exempt, ns.Name) {
			continue
		}
		holder := scc.Holder{Name: ns.Name, Created: ns.CreationTimestamp, Annotations: ns.Annotations}
		if given := r.given[ns.UID]; given != nil && !has(ns.Annotations, given) {
			holder.Annotations = maps.Clone(ns.Annotations)
			if holder.Annotations == nil {
				holder.Annotations = map[string]string{}
			}
			maps.Copy(holder.Annotations, given)
			seen[ns.UID] = given
		}
		namespaces[ns.Name] = ns
		holders = append(holders, holder)
	}
	r.given = seen
	// Most often there is nothing to do, which is seen without a request.
	if allocations, _, err := scc.Allocate(r.Pool, 0, holders); len(allocations) == 0 && err == nil {
		return reconcile.Result{}, nil
	}
	allocations, err := r.reserve(ctx, holders)
	if err != nil && !errors.Is(err, scc.ErrPoolExhausted) {
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil // another leader's last write
		}
		return reconcile.Result{}, err
	}
	stale, failed := r.write(ctx, namespaces, allocations)
	if err := errors.Join(err, failed); err != nil || !stale {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: requeueSoon}, nil
}

// has tells whether the annotations are as they were given. What changed since is not ours to hide.
func has(annotations, given map[string]string) bool {
	for key := range given {
		if annotations[key] != "" {
			return true
		}
	}
	return false
}

// reserve writes down that blocks are given, before they are.
func (r *Allocations) reserve(ctx context.Context, holders []scc.Holder) ([]scc.Allocation, error) {
	book, err := r.ConfigMaps.Get(ctx, v1alpha1.AllocationsConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read where allocations are written down: %w", err)
	}
	next, err := strconv.Atoi(book.Data[allocatedKey])
	if err != nil || next < 0 {
		next = 0 // nothing was given yet, or that is not known: blocks that namespaces have are passed over
	}
	allocations, after, exhausted := scc.Allocate(r.Pool, next, holders)
	if after != next {
		if book.Data == nil {
			book.Data = map[string]string{}
		}
		book.Data[allocatedKey] = strconv.Itoa(after)
		if _, err := r.ConfigMaps.Update(ctx, book, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("write down what is allocated: %w", err)
		}
	}
	return allocations, exhausted
}

// allocationPatch changes nothing in a namespace that has other ids by now, or in another namespace of the name: pods
// that run keep the ids of an earlier allocation.
func allocationPatch(ns *corev1.Namespace, allocation scc.Allocation) client.Patch {
	return patch.Tested{}.Test("/metadata/uid", ns.UID).
		SetIn("/metadata/annotations", ns.Annotations, allocation.Annotations, AllocationKeys...)
}

// write gives namespaces what is allocated. It reports whether some were changed meanwhile, and are to be looked at
// again.
func (r *Allocations) write(
	ctx context.Context, namespaces map[string]*corev1.Namespace, allocations []scc.Allocation,
) (stale bool, err error) {
	errs := make([]error, len(allocations))
	workqueue.ParallelizeUntil(ctx, allocationWrites, len(allocations), func(i int) {
		ns := namespaces[allocations[i].Namespace]
		target := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
		if err := r.Client.Status().Patch(ctx, target,
			allocationPatch(ns, allocations[i])); client.IgnoreNotFound(err) != nil {
			errs[i] = fmt.Errorf("give namespace %s its user ids: %w", ns.Name, err)
		}
	})
	for i, allocation := range allocations {
		ns := namespaces[allocation.Namespace]
		if patch.IsStale(errs[i]) {
			stale, errs[i] = true, nil
			continue
		}
		if errs[i] == nil && allocation.Repairs == "" {
			r.given[ns.UID] = allocation.Annotations
		}
		if errs[i] == nil && allocation.Repairs != "" {
			r.Recorder.Eventf(reporting.InNamespace(ns), nil, corev1.EventTypeWarning, "AllocationRepaired", "Allocate",
				"the namespace was given others: %s. Pods that are running keep theirs", allocation.Repairs)
		}
	}
	return stale, errors.Join(errs...)
}
