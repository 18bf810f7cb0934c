package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
)

const (
	// countDelay gathers what is counted in the namespaces of a policyspace into one look at it.
	countDelay = 20 * time.Millisecond
	// manyBookings that are written down are taken out of a status, even if nothing else is new.
	manyBookings = 100
	// bookingTime is how long a booking may take to be written down. What was not by then is let go.
	bookingTime = 5 * time.Second
)

// PolicySpaces knows where namespaces are, and keeps what policyspaces say of themselves.
type PolicySpaces struct {
	// Client reads from the cache, Live from the API server.
	Client    client.Client
	Live      client.Reader
	Templates *Templates
	// Queue is that of the namespaces.
	Queue   *Queue
	Metrics *Metrics
	// Caches are as new as the leadership before anything is done.
	Caches *leadership.Caches
	// Queues makes the controller's queue.
	Queues *backoff.Queues

	mu     sync.Mutex
	loaded bool
	// fresh says that the cache is known to have what was counted before this process was asked.
	fresh bool
	// since is when this process began to remember which namespaces are counted.
	since  time.Time
	forest hierarchy.Forest
	// counted are the young namespaces of which it was known in a space what they use, and when they were created.
	counted map[inSpace]time.Time
	// open are bookings that are not written down, by space and namespace, and since when that is known.
	open map[booking]time.Time
	due  workqueue.TypedRateLimitingInterface[reconcile.Request]
}

type booking struct{ space, namespace, since string }

type inSpace struct {
	space     string
	namespace types.UID
}

// SetupWithManager has policyspaces looked at as they change, and as namespaces in them do or use more or less.
func (r *PolicySpaces) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.open, r.counted = map[booking]time.Time{}, map[inSpace]time.Time{}
	if err := mgr.GetFieldIndexer().IndexField(ctx, &corev1.Namespace{}, placeIndex, indexPlaces); err != nil {
		return err
	}
	r.due = r.Queues.NewRetrying("policyspace", backoff.FirstRetry)
	// How many namespaces there are may be said a little later than what they use.
	in := func(ctx context.Context, object client.Object, after time.Duration) {
		if ns, ok := object.(*corev1.Namespace); ok {
			charged, err := chargedBy(ctx, r.Client, ns)
			if err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "can't tell which policyspaces a namespace counts in", "namespace",
					ns.Name)
			}
			r.countSoon(after, charged...)
		}
	}
	return ctrl.NewControllerManagedBy(mgr).Named("policyspace").
		For(&v1alpha1.PolicySpace{}, builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			if space, ok := e.ObjectNew.(*v1alpha1.PolicySpace); ok && len(space.Status.Bookings) > 0 {
				// if what is booked is never written down, nothing else tells of it
				r.countSoon(statusDelay, space.Name)
			}
			return notStatusAlone(e) ||
				e.ObjectOld.GetLabels()[v1alpha1.TreeLabel] != e.ObjectNew.GetLabels()[v1alpha1.TreeLabel]
		}})).
		Watches(&corev1.Namespace{}, handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, _ requests) { in(ctx, e.Object, statusDelay) },
			UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ requests) {
				if placeOf(e.ObjectOld) != placeOf(e.ObjectNew) {
					// What moves brings along what it uses.
					after := statusDelay
					if ns, ok := e.ObjectOld.(*corev1.Namespace); ok && len(hierarchy.OwnDepthLabels(ns)) > 0 {
						after = countDelay
					}
					in(ctx, e.ObjectOld, after)
					in(ctx, e.ObjectNew, after)
				}
			},
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ requests) { in(ctx, e.Object, countDelay) },
		}).
		Watches(&corev1.ResourceQuota{},
			handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, object client.Object) []reconcile.Request {
				ns := &corev1.Namespace{}
				if r.Client.Get(ctx, client.ObjectKey{Name: object.GetNamespace()}, ns,
					client.UnsafeDisableDeepCopy) == nil {
					in(ctx, ns, countDelay)
				}
				return nil
			})).
		WithOptions(controller.Options{NewQueue: func(string, limiter) requests { return r.due }}).
		Complete(r.Caches.Before(r))
}

// placeOf is what of a namespace its policyspaces go by.
func placeOf(object client.Object) string {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return ""
	}
	return fmt.Sprint(depths(ns), ns.Labels[v1alpha1.PolicySpaceLabel], ns.DeletionTimestamp != nil)
}

func (r *PolicySpaces) countSoon(after time.Duration, spaces ...string) {
	for _, space := range spaces {
		r.due.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: space}}, after)
	}
}

// Place returns a namespace with the labels that say where it is: itself, if it has them. The error is a
// hierarchy.BrokenError or a hierarchy.NotAdoptedError, or says that the forest could not be read.
func (r *PolicySpaces) Place(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.loaded {
		forest, err := r.read(ctx)
		if err != nil {
			return nil, err
		}
		r.forest, r.loaded = forest, true
	}
	return r.forest.Placed(ns)
}

func (r *PolicySpaces) read(ctx context.Context) (hierarchy.Forest, error) {
	list := &v1alpha1.PolicySpaceList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return hierarchy.Forest{}, err
	}
	spaces := make([]*v1alpha1.PolicySpace, 0, len(list.Items))
	for i := range list.Items {
		spaces = append(spaces, &list.Items[i])
	}
	return hierarchy.NewForest(spaces), nil
}

// Reconcile takes the forest in and keeps the status of a policyspace.
func (r *PolicySpaces) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.Templates.Load(ctx); err != nil {
		return reconcile.Result{}, err
	}
	taken, err := r.take(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	fresh, err := r.isFresh(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !taken || !fresh {
		return reconcile.Result{RequeueAfter: lookAgain}, nil
	}
	space := &v1alpha1.PolicySpace{}
	if err := r.Client.Get(ctx, req.NamespacedName, space); err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.forgetQuota(req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return r.keepStatus(ctx, space)
}

// take makes the forest that of the cache, and has the namespaces looked at that are elsewhere in it. One that moves
// inherits other templates: it does so only once all that there are have been taken in, so that it gets what is new to
// it together with losing what is not.
func (r *PolicySpaces) take(ctx context.Context) (bool, error) {
	next, err := r.read(ctx)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	affected := elsewhere(r.forest, next)
	if r.loaded && len(affected) == 0 {
		return true, nil
	}
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.HasLabels{v1alpha1.PolicySpaceLabel},
		client.UnsafeDisableDeepCopy); err != nil {
		return false, err
	}
	var moved []string
	settled := false
	for i := range list.Items {
		ns := &list.Items[i]
		before, errBefore := r.forest.Placed(ns)
		after, errAfter := next.Placed(ns)
		if depths(before) != depths(after) || hierarchy.InTree(before) != hierarchy.InTree(after) ||
			(errBefore == nil) != (errAfter == nil) {
			moved = append(moved, ns.Name)
			settled = settled || len(hierarchy.OwnDepthLabels(ns)) > 0
		}
	}
	if settled && r.loaded {
		if current, err := r.Templates.Current(ctx, ""); err != nil || !current {
			return false, err
		}
	}
	r.countSoon(countDelay, affected...)
	r.forest, r.loaded = next, true
	r.Queue.AddBulk(moved...)
	return true, nil
}

// elsewhere returns the policy spaces whose path or tree differs between two forests, and those that have other
// children.
func elsewhere(a, b hierarchy.Forest) []string {
	found := map[string]bool{}
	for _, name := range slices.Concat(a.Names(), b.Names()) {
		before, after := a.Get(name), b.Get(name)
		if before != nil && after != nil && before.Spec.Parent == after.Spec.Parent &&
			before.Labels[v1alpha1.TreeLabel] == after.Labels[v1alpha1.TreeLabel] {
			continue
		}
		maps.Copy(found, a.Below(name))
		maps.Copy(found, b.Below(name))
		for _, space := range []*v1alpha1.PolicySpace{before, after} {
			if space != nil && space.Spec.Parent != "" {
				found[space.Spec.Parent] = true
			}
		}
	}
	return slices.Collect(maps.Keys(found))
}
