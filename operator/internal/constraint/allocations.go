package constraint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/scc"
)

// retryStale is when namespaces that changed before they could be patched are reconciled again.
const retryStale = 250 * time.Millisecond

// restFactor is how many times as long as a comparison of all namespaces the pause after it is.
const restFactor = 9

// reportDelay is when an initializing namespace is given a block that it still lacks. Usually it is given one together
// with the first report on its population, which needs no write of its own.
const reportDelay = time.Second

// allocationWorkers is the number of new namespaces that are patched at the same time.
const allocationWorkers = 8

// maxConcurrentPatches is the number of namespaces that are patched at the same time.
const maxConcurrentPatches = 16

// Allocations is the controller that gives each namespace a block of user IDs and an SELinux level of its own, while
// there are constraints. A new namespace is given one without a look at the others. All namespaces are compared at the
// start, after a change of constraints, and when a namespace has annotations that it was not given.
type Allocations struct {
	*leadership.Leader
	Blocks *Blocks

	// resume is the time before which all namespaces are not compared again.
	resume time.Time
}

// SetupWithManager adds a controller that reconciles new namespaces one by one. The request without a name is for the
// comparison of all.
func (r *Allocations) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("allocation").
		Watches(&corev1.Namespace{}, r.handler()).
		WatchesRawSource(source.Func(func(_ context.Context, queue backoff.Queue) error {
			r.Blocks.Constraints.Changes.Listen(func() { queue.Add(reconcile.Request{}) })
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: allocationWorkers, NewQueue: r.Queues.New}).
		Complete(r.Caches.Before(r))
}

func (r *Allocations) handler() handler.EventHandler {
	created := func(object client.Object, queue backoff.Queue) {
		ns, ok := object.(*corev1.Namespace)
		switch one := (reconcile.Request{NamespacedName: client.ObjectKeyFromObject(object)}); {
		case !ok || hasAllocation(ns):
			queue.Add(reconcile.Request{})
		case initialize.Initializing(ns):
			queue.AddAfter(one, reportDelay)
		default:
			queue.Add(one)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue backoff.Queue) {
			if e.IsInInitialList {
				queue.Add(reconcile.Request{})
				return
			}
			created(e.Object, queue)
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, queue backoff.Queue) {
			ns, ok := e.ObjectNew.(*corev1.Namespace)
			switch {
			case e.ObjectOld.GetUID() != e.ObjectNew.GetUID():
				r.Blocks.forget(e.ObjectOld.GetUID())
				created(e.ObjectNew, queue)
			case ok && initialize.Initializing(e.ObjectOld) && !initialize.Initializing(ns) && !hasAllocation(ns):
				queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(ns)})
			case !ok || allocationOf(e.ObjectOld) == allocationOf(e.ObjectNew):
			case r.Blocks.isGiven(ns):
				r.Blocks.forget(ns.UID)
			default:
				queue.Add(reconcile.Request{})
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ backoff.Queue) {
			r.Blocks.forget(e.Object.GetUID())
		},
	}
}

// AllocationKeys are the annotations that a namespace is given together.
var AllocationKeys = []string{
	v1alpha1.UIDRangeAnnotation, v1alpha1.SupplementalGroupsAnnotation, v1alpha1.MCSAnnotation,
}

// hasAllocation reports whether a namespace has one of the annotations.
func hasAllocation(ns *corev1.Namespace) bool {
	return slices.ContainsFunc(AllocationKeys, func(key string) bool {
		_, exists := ns.Annotations[key]
		return exists
	})
}

func allocationOf(ns client.Object) [3]string {
	annotations := ns.GetAnnotations()
	return [3]string{
		annotations[v1alpha1.UIDRangeAnnotation], annotations[v1alpha1.SupplementalGroupsAnnotation],
		annotations[v1alpha1.MCSAnnotation],
	}
}

// Reconcile gives a namespace the annotations that it lacks, or all namespaces if the request has no name.
func (r *Allocations) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.Name == "" {
		return r.compareAll(ctx)
	}
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, request.NamespacedName, ns, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if awaitsReport(ns) {
		return reconcile.Result{RequeueAfter: reportDelay}, nil
	}
	given, err := r.Blocks.For(ctx, ns)
	if errors.Is(err, scc.ErrPoolExhausted) {
		r.Recorder.Eventf(reporting.InNamespace(ns), nil, corev1.EventTypeWarning, scc.ReasonPoolExhausted, "Allocate",
			"the namespace is given no user IDs, so its pods that need some are denied: %s", err)
	}
	if err != nil || given == nil {
		return retryConflict(err)
	}
	if err := r.patch(ctx, ns, given); patch.IsStale(err) {
		return reconcile.Result{RequeueAfter: retryStale}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, nil
}

// awaitsReport reports whether a namespace waits for the first report on its population, which comes with a block.
func awaitsReport(ns *corev1.Namespace) bool {
	return initialize.Initializing(ns) && populate.PopulatedCondition(ns) == nil &&
		slices.Contains(initialize.Pending(ns), v1alpha1.TemplateInitializer)
}

// retryConflict makes a conflict with the last write of an earlier leader be retried at once.
func retryConflict(err error) (reconcile.Result, error) {
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: time.Millisecond}, nil
	}
	return reconcile.Result{}, err
}

// compareAll gives every namespace the annotations that it lacks. It compares all namespaces, so it pauses afterwards:
// those that come meanwhile are compared together.
func (r *Allocations) compareAll(ctx context.Context) (reconcile.Result, error) {
	if wait := time.Until(r.resume); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if isNeeded, err := r.Blocks.isNeeded(ctx); err != nil || !isNeeded {
		return reconcile.Result{}, err
	}
	start := time.Now()
	namespaces, err := r.Blocks.Namespaces.List(labels.Everything())
	if err != nil {
		return reconcile.Result{}, err
	}
	allocations, exhausted := r.Blocks.Complete(ctx, namespaces)
	r.resume = time.Now().Add(restFactor * time.Since(start))
	if exhausted != nil && !errors.Is(exhausted, scc.ErrPoolExhausted) {
		return retryConflict(exhausted)
	}
	stale, err := r.write(ctx, namespaces, allocations)
	if err := errors.Join(exhausted, err); err != nil || !stale {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: retryStale}, nil
}

// allocationPatch returns a patch that the API server rejects if the namespace has other allocation annotations by now,
// or is another namespace of that name. Running pods keep the user IDs of an earlier allocation, so a namespace must
// not be given two.
func allocationPatch(ns *corev1.Namespace, annotations map[string]string) client.Patch {
	return patch.Tested{}.Test("/metadata/uid", ns.UID).
		SetIn("/metadata/annotations", ns.Annotations, annotations, AllocationKeys...)
}

func (r *Allocations) patch(ctx context.Context, ns *corev1.Namespace, annotations map[string]string) error {
	target := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
	err := r.Client.Status().Patch(ctx, target, allocationPatch(ns, annotations))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("allocate user IDs to namespace %s: %w", ns.Name, err)
	}
	return nil
}

// write annotates namespaces. It reports whether some of them had changed and have to be reconciled again.
func (r *Allocations) write(
	ctx context.Context, namespaces []*corev1.Namespace, allocations []scc.Allocation,
) (stale bool, err error) {
	byName := make(map[string]*corev1.Namespace, len(namespaces))
	for _, ns := range namespaces {
		byName[ns.Name] = ns
	}
	errs := make([]error, len(allocations))
	workqueue.ParallelizeUntil(ctx, maxConcurrentPatches, len(allocations), func(i int) {
		errs[i] = r.patch(ctx, byName[allocations[i].Namespace], allocations[i].Annotations)
	})
	for i, allocation := range allocations {
		ns := byName[allocation.Namespace]
		if errs[i] != nil {
			r.Blocks.forget(ns.UID)
		}
		switch {
		case patch.IsStale(errs[i]):
			stale, errs[i] = true, nil
		case errs[i] == nil && allocation.Repairs != "":
			r.Recorder.Eventf(reporting.InNamespace(ns), nil, corev1.EventTypeWarning, "AllocationRepaired", "Allocate",
				"allocated other user IDs and another SELinux level to the namespace: %s. Running pods keep their user "+
					"IDs: restart them", allocation.Repairs)
		}
	}
	return stale, errors.Join(errs...)
}
