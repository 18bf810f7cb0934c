package controller

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/backoff"
)

type (
	requests = workqueue.TypedRateLimitingInterface[reconcile.Request]
	limiter  = workqueue.TypedRateLimiter[reconcile.Request]
)

// workers is how many namespaces are worked on at once. Each has its objects written in parallel.
const workers = 16

// SetupWithManager has the namespaces looked at that the queue names, and fills the queue from the watch of namespaces.
func (r *Namespaces) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("namespace").
		Watches(&corev1.Namespace{}, r.handler()).
		WatchesRawSource(source.Func(r.start)).
		WithOptions(controller.Options{
			MaxConcurrentReconciles: workers,
			NewQueue:                func(string, limiter) requests { return r.Queue },
		}).
		Complete(r.Caches.Before(r))
}

// start queues the namespaces that are there at the start, before any is worked on: first those that wait to be opened,
// or of which nothing was ever reported, in the order in which they were created.
func (r *Namespaces) start(ctx context.Context, _ requests) error {
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var waiting []*corev1.Namespace
	var others []string
	for i := range list.Items {
		ns := &list.Items[i]
		if reported, _ := found(ns); reported.Initializing || reported.Status == "" {
			waiting = append(waiting, ns)
		} else {
			others = append(others, ns.Name)
		}
	}
	slices.SortFunc(waiting, inOrderOfCreation)
	for _, ns := range waiting {
		r.Queue.AddNew(ns.Name)
	}
	r.Queue.AddBulk(others...)
	return nil
}

// inOrderOfCreation compares namespaces. Times of creation are in seconds; within one, the resource version tells, as
// long as nobody changed the namespace since.
func inOrderOfCreation(a, b *corev1.Namespace) int {
	if order := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); order != 0 {
		return order
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	if err != nil {
		return strings.Compare(a.Name, b.Name)
	}
	return order
}

func (r *Namespaces) handler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ requests) {
			if !e.IsInInitialList {
				r.born(e.Object)
			}
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ requests) {
			switch {
			case e.ObjectOld.GetUID() != e.ObjectNew.GetUID():
				r.born(e.ObjectNew)
			case !maps.Equal(e.ObjectOld.GetLabels(), e.ObjectNew.GetLabels()),
				!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations()),
				!e.ObjectOld.GetDeletionTimestamp().Equal(e.ObjectNew.GetDeletionTimestamp()):
				r.Queue.AddChanged(e.ObjectNew.GetName())
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requests) {
			r.Ledger.Forget(e.Object.GetName())
		},
	}
}

func (r *Namespaces) born(ns client.Object) {
	r.Ledger.Born(ns.GetName(), ns.GetUID(), time.Now())
	r.Queue.AddNew(ns.GetName())
}

// NewTemplateQueue returns the queue of templates, and a function that puts one in it for its status: soon, not at
// once, because many namespaces change at a time.
func NewTemplateQueue(queues *backoff.Queues) (requests, func(template string)) {
	queue := queues.NewRetrying("namespacetemplate", backoff.FirstRetry)
	return queue, func(template string) {
		queue.AddWithOpts(priorityqueue.AddOpts{After: statusDelay},
			reconcile.Request{NamespacedName: client.ObjectKey{Name: template}})
	}
}

// SetupWithManager has templates taken in as they change, and again when a kind of theirs comes to the cluster.
func (r *Templates) SetupWithManager(mgr ctrl.Manager, queue requests) error {
	return ctrl.NewControllerManagedBy(mgr).Named("namespacetemplate").
		For(&v1alpha1.NamespaceTemplate{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: notStatusAlone})).
		WatchesMetadata(definitionOf(""), handler.EnqueueRequestsFromMapFunc(r.withKindsOf), builder.OnlyMetadata).
		WithOptions(controller.Options{
			NewQueue: func(string, limiter) requests { return queue },
		}).
		Complete(r.Caches.Before(r))
}

// notStatusAlone keeps out the events of our own writes of the status. A deletion is a new generation.
func notStatusAlone(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() ||
		e.ObjectOld.GetGeneration() != e.ObjectNew.GetGeneration() ||
		!maps.Equal(e.ObjectOld.GetAnnotations(), e.ObjectNew.GetAnnotations())
}

// withKindsOf returns the templates that have objects of a CustomResourceDefinition's group.
func (r *Templates) withKindsOf(_ context.Context, definition client.Object) []reconcile.Request {
	_, group, _ := strings.Cut(definition.GetName(), ".")
	var found []reconcile.Request
	for _, template := range r.Index.All() {
		for _, kind := range template.Status.Kinds {
			if kind.Group == group {
				found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(template)})
				break
			}
		}
	}
	return found
}
