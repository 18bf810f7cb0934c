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

// nextBlockKey is the key, in the ConfigMap of allocations, of the number of the block that is given next.
const nextBlockKey = "next"

// retryStale is when namespaces that changed before they could be patched are reconciled again.
const retryStale = 250 * time.Millisecond

// restFactor is how many times as long as a comparison of all namespaces the pause after it is.
const restFactor = 9

// maxConcurrentPatches is the number of namespaces that are patched at the same time.
const maxConcurrentPatches = 16

// Allocations is the controller that gives each namespace a block of user IDs and an SELinux level of its own, while
// there are constraints. It writes down the next free block before it gives one away, so that another leader continues
// after it and no block is given twice.
type Allocations struct {
	Client     client.Client
	ConfigMaps corev1client.ConfigMapInterface
	Recorder   events.EventRecorder
	Pool       scc.Pool
	// Exempt lists the namespaces that are given nothing.
	Exempt []string
	// Constraints are the cached constraints. If there are none, namespaces are given nothing.
	Constraints *constraintCache
	// Caches delays the controller until the caches have caught up with the start of the leadership.
	Caches *leadership.Caches
	// Queues creates the queue of the controller.
	Queues *backoff.Queues

	// written contains the annotations that the cache may not show yet, by namespace.
	written map[types.UID]map[string]string
	// resume is the time before which Reconcile waits for more namespaces.
	resume time.Time
}

// SetupWithManager adds a controller that reconciles all namespaces together when one is created, when its annotations
// change, and when constraints change.
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
		WatchesRawSource(source.Func(func(_ context.Context, queue backoff.Queue) error {
			r.Constraints.changes.Listen(func() { queue.Add(reconcile.Request{}) })
			return nil
		})).
		WithOptions(controller.Options{NewQueue: r.Queues.New}).
		Complete(r.Caches.Before(r))
}

// AllocationKeys are the annotations that a namespace is given together.
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

// Reconcile gives every namespace the annotations that it lacks. It compares all namespaces, so it pauses afterwards:
// those that are created meanwhile are compared together.
func (r *Allocations) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if wait := time.Until(r.resume); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	start := time.Now()
	if constraints, err := r.Constraints.get(ctx); err != nil || len(constraints) == 0 {
		return reconcile.Result{}, err
	}
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	var holders []scc.Holder
	holders, r.written = holdersOf(list.Items, r.Exempt, r.written)
	allocations, _, err := scc.Allocate(r.Pool, 0, holders)
	r.resume = time.Now().Add(restFactor * time.Since(start))
	if len(allocations) == 0 && err == nil { // usually, and then no request is needed
		return reconcile.Result{}, nil
	}
	allocations, exhausted := r.reserve(ctx, holders)
	if exhausted != nil && !errors.Is(exhausted, scc.ErrPoolExhausted) {
		if apierrors.IsConflict(exhausted) {
			return reconcile.Result{RequeueAfter: time.Millisecond}, nil // with the last write of an earlier leader
		}
		return reconcile.Result{}, exhausted
	}
	stale, err := r.write(ctx, list.Items, allocations)
	if err := errors.Join(exhausted, err); err != nil || !stale {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: retryStale}, nil
}

// holdersOf returns the namespaces that can be given annotations, with those that they have. written contains the
// annotations that were written and that the cache may not show yet; holdersOf adds them to the namespace, and returns
// the part of written that the cache still does not show.
func holdersOf(
	namespaces []corev1.Namespace, exempt []string, written map[types.UID]map[string]string,
) ([]scc.Holder, map[types.UID]map[string]string) {
	var holders []scc.Holder
	missing := map[types.UID]map[string]string{}
	for i := range namespaces {
		ns := &namespaces[i]
		if slices.Contains(exempt, ns.Name) {
			continue
		}
		holder := scc.Holder{Name: ns.Name, Created: ns.CreationTimestamp, Annotations: ns.Annotations}
		if unseen := written[ns.UID]; unseen != nil && !hasAny(ns.Annotations, unseen) {
			holder.Annotations = map[string]string{}
			maps.Copy(holder.Annotations, ns.Annotations)
			maps.Copy(holder.Annotations, unseen)
			missing[ns.UID] = unseen
		}
		holders = append(holders, holder)
	}
	return holders, missing
}

// hasAny reports whether one of the written annotations exists. All were written at once, so the cache shows that write
// or a later one, and its values count.
func hasAny(annotations, written map[string]string) bool {
	for key := range written {
		if annotations[key] != "" {
			return true
		}
	}
	return false
}

// reserve allocates blocks, and writes down the next free one before any namespace is given one. If the pool is
// exhausted, it returns the allocations that were possible and scc.ErrPoolExhausted.
func (r *Allocations) reserve(ctx context.Context, holders []scc.Holder) ([]scc.Allocation, error) {
	record, err := r.ConfigMaps.Get(ctx, v1alpha1.AllocationsConfigMap, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get the ConfigMap with the next block of user IDs: %w", err)
	}
	next := nextBlock(record.Data)
	allocations, after, exhausted := scc.Allocate(r.Pool, next, holders)
	if after != next {
		if record.Data == nil {
			record.Data = map[string]string{}
		}
		record.Data[nextBlockKey] = strconv.Itoa(after)
		if _, err := r.ConfigMaps.Update(ctx, record, metav1.UpdateOptions{}); err != nil {
			return nil, fmt.Errorf("reserve blocks of user IDs: %w", err)
		}
	}
	return allocations, exhausted
}

// nextBlock returns the number of the block that is given next. It is 0 if the ConfigMap has no valid number: blocks
// that namespaces have are skipped in any case.
func nextBlock(data map[string]string) int {
	next, err := strconv.Atoi(data[nextBlockKey])
	if err != nil || next < 0 {
		return 0
	}
	return next
}

// allocationPatch returns a patch that the API server rejects if the namespace has other allocation annotations by now,
// or is another namespace of that name. Running pods keep the user IDs of an earlier allocation, so a namespace must
// not be given two.
func allocationPatch(ns *corev1.Namespace, allocation scc.Allocation) client.Patch {
	return patch.Tested{}.Test("/metadata/uid", ns.UID).
		SetIn("/metadata/annotations", ns.Annotations, allocation.Annotations, AllocationKeys...)
}

// write annotates namespaces. It reports whether some of them had changed and have to be reconciled again.
func (r *Allocations) write(
	ctx context.Context, namespaces []corev1.Namespace, allocations []scc.Allocation,
) (stale bool, err error) {
	byName := make(map[string]*corev1.Namespace, len(namespaces))
	for i := range namespaces {
		byName[namespaces[i].Name] = &namespaces[i]
	}
	errs := make([]error, len(allocations))
	workqueue.ParallelizeUntil(ctx, maxConcurrentPatches, len(allocations), func(i int) {
		ns := byName[allocations[i].Namespace]
		target := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
		err := r.Client.Status().Patch(ctx, target, allocationPatch(ns, allocations[i]))
		if client.IgnoreNotFound(err) != nil {
			errs[i] = fmt.Errorf("allocate user IDs to namespace %s: %w", ns.Name, err)
		}
	})
	for i, allocation := range allocations {
		ns := byName[allocation.Namespace]
		switch {
		case patch.IsStale(errs[i]):
			stale, errs[i] = true, nil
		case errs[i] != nil:
		case allocation.Repairs == "":
			r.written[ns.UID] = allocation.Annotations
		default:
			r.Recorder.Eventf(reporting.InNamespace(ns), nil, corev1.EventTypeWarning, "AllocationRepaired", "Allocate",
				"allocated other user IDs and another SELinux level to the namespace: %s. Running pods keep their user "+
					"IDs: restart them", allocation.Repairs)
		}
	}
	return stale, errors.Join(errs...)
}
