package policyspace

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
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
	"nstpl.dev/nstpl/operator/internal/population/queue"
	"nstpl.dev/nstpl/operator/internal/watch"
)

const (
	// countDelay gathers what is counted in the namespaces of a policyspace into one look at it.
	countDelay = 20 * time.Millisecond
	// statusDelay gathers what changes a policy space's status into one write.
	statusDelay = time.Second
	// requeueSoon is when a policy space is reconciled again while the cache is behind.
	requeueSoon = 250 * time.Millisecond
	// manyBookings that are written down are taken out of a status, even if nothing else is new.
	manyBookings = 100
	// bookingTime is how long a booking may take to be written down. What was not by then is let go.
	bookingTime = 5 * time.Second
)

// PolicySpaces knows where namespaces are, and keeps what policyspaces say of themselves.
type Spaces struct {
	// Client reads from the cache, Live from the API server.
	Client client.Client
	Live   client.Reader
	// Queue is that of the namespaces.
	Queue   *queue.Queue
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
	// asOf is the newest resourceVersion of a policy space in the forest.
	asOf string
	// counted are the young namespaces of which it was known in a space what they use, and when they were created.
	counted map[inSpace]time.Time
	// open are bookings that are not written down, by space and namespace, and since when that is known.
	open map[openReservation]time.Time
	due  workqueue.TypedRateLimitingInterface[reconcile.Request]
}

type openReservation struct{ space, namespace, since string }

type inSpace struct {
	space     string
	namespace types.UID
}

// SetupWithManager has policyspaces looked at as they change, and as namespaces in them do or use more or less.
func (r *Spaces) SetupWithManager(ctx context.Context, mgr ctrl.Manager) error {
	r.open, r.counted = map[openReservation]time.Time{}, map[inSpace]time.Time{}
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
			return watch.MoreThanStatus(e) ||
				e.ObjectOld.GetLabels()[v1alpha1.TreeLabel] != e.ObjectNew.GetLabels()[v1alpha1.TreeLabel]
		}})).
		Watches(&corev1.Namespace{}, handler.Funcs{
			CreateFunc: func(ctx context.Context, e event.CreateEvent, _ backoff.Queue) {
				in(ctx, e.Object, statusDelay)
			},
			UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ backoff.Queue) {
				if moved(e) {
					// What moves brings along what it uses.
					after := statusDelay
					if ns, ok := e.ObjectOld.(*corev1.Namespace); ok && len(hierarchy.OwnDepthLabels(ns)) > 0 {
						after = countDelay
					}
					in(ctx, e.ObjectOld, after)
					in(ctx, e.ObjectNew, after)
				}
			},
			DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ backoff.Queue) {
				in(ctx, e.Object, countDelay)
			},
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
		WithOptions(controller.Options{NewQueue: func(string, backoff.Limiter) backoff.Queue { return r.due }}).
		Complete(r.Caches.Before(r))
}

// moved reports whether an update may change in which policy spaces a namespace is, or whether it counts in them.
func moved(e event.UpdateEvent) bool {
	before, isNamespace := e.ObjectOld.(*corev1.Namespace)
	after, isStill := e.ObjectNew.(*corev1.Namespace)
	return isNamespace && isStill &&
		(!maps.Equal(hierarchy.OwnDepthLabels(before), hierarchy.OwnDepthLabels(after)) ||
			before.Labels[v1alpha1.PolicySpaceLabel] != after.Labels[v1alpha1.PolicySpaceLabel] ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil))
}

func (r *Spaces) countSoon(after time.Duration, spaces ...string) {
	for _, space := range spaces {
		r.due.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: space}}, after)
	}
}

// Place returns a namespace with the labels that say where it is: itself, if it has them. The error is a
// hierarchy.BrokenError or a hierarchy.NotAdoptedError, or says that the forest could not be read.
func (r *Spaces) Place(ctx context.Context, ns *corev1.Namespace) (*corev1.Namespace, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.loaded {
		forest, asOf, err := r.read(ctx)
		if err != nil {
			return nil, err
		}
		r.forest, r.asOf, r.loaded = forest, asOf, true
	}
	return r.forest.Placed(ns)
}

// AsOf returns the resourceVersion of what decided where a namespace is: of the namespace, or of the policy space that
// changed last.
func (r *Spaces) AsOf(ns *corev1.Namespace) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return newerVersion(ns.ResourceVersion, r.asOf)
}

// read returns the forest of the cache, and the newest resourceVersion of a policy space in it.
func (r *Spaces) read(ctx context.Context) (forest hierarchy.Forest, asOf string, err error) {
	list := &v1alpha1.PolicySpaceList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return forest, "", err
	}
	spaces := make([]*v1alpha1.PolicySpace, 0, len(list.Items))
	for i := range list.Items {
		spaces = append(spaces, &list.Items[i])
		asOf = newerVersion(list.Items[i].ResourceVersion, asOf)
	}
	return hierarchy.NewForest(spaces), asOf, nil
}

// newerVersion returns the newer of two resourceVersions. An empty one is older than all others.
func newerVersion(a, b string) string {
	if order, err := resourceversion.CompareResourceVersion(a, b); a == "" || err == nil && order < 0 {
		return b
	}
	return a
}

// Reconcile takes the forest in and keeps the status of a policyspace.
func (r *Spaces) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.updateForest(ctx); err != nil {
		return reconcile.Result{}, err
	}
	fresh, err := r.isFresh(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !fresh {
		return reconcile.Result{RequeueAfter: requeueSoon}, nil
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

// updateForest replaces the forest by that of the cache, and queues the namespaces whose place differs.
func (r *Spaces) updateForest(ctx context.Context) error {
	next, asOf, err := r.read(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	affected := differing(r.forest, next)
	if r.loaded && len(affected) == 0 {
		return nil
	}
	list := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, list, client.HasLabels{v1alpha1.PolicySpaceLabel},
		client.UnsafeDisableDeepCopy); err != nil {
		return err
	}
	var elsewhere []string
	for i := range list.Items {
		ns := &list.Items[i]
		before, errBefore := r.forest.Placed(ns)
		after, errAfter := next.Placed(ns)
		if !maps.Equal(hierarchy.OwnDepthLabels(before), hierarchy.OwnDepthLabels(after)) ||
			hierarchy.InTree(before) != hierarchy.InTree(after) ||
			(errBefore == nil) != (errAfter == nil) {
			elsewhere = append(elsewhere, ns.Name)
		}
	}
	r.countSoon(countDelay, affected...)
	r.forest, r.asOf, r.loaded = next, asOf, true
	r.Queue.AddBulk(elsewhere...)
	return nil
}

// differing returns the policy spaces whose path or tree differs between two forests, and those that have other
// children.
func differing(a, b hierarchy.Forest) []string {
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
