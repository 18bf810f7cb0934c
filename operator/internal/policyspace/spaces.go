package policyspace

import (
	"context"
	"maps"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// usageDelay is how long a change of limited usage waits, so that one write of the status follows several changes.
	usageDelay = 20 * time.Millisecond
	// statusDelay is the same for other changes, such as that of the number of namespaces.
	statusDelay = time.Second
	// countDelay is the same for the number of namespaces, if it is limited.
	countDelay = 200 * time.Millisecond
	// freshnessPoll is when a policy space is reconciled again while the cache is behind.
	freshnessPoll = 250 * time.Millisecond
)

// Spaces is the controller of PolicySpaces. It computes in which policy spaces a namespace is, and keeps the statuses
// of the policy spaces. Its exported methods are safe for concurrent use.
type Spaces struct {
	*leadership.Leader
	// Members finds the namespaces of policy spaces.
	Members members
	// Namespaces is the queue of the controller of namespaces.
	Namespaces *queue.Queue
	// Stored has the configuration of the webhooks that enforce limits and rules.
	Stored  storedWebhooks
	Metrics *Metrics

	requests workqueue.TypedRateLimitingInterface[reconcile.Request]
	// written has the policy spaces whose status the controller wrote.
	written freshness.Store[string, *v1alpha1.PolicySpace]

	// polls decides when a policy space is reconciled again while it is unknown whether it is enforced.
	polls workqueue.TypedRateLimiter[string]
	// failed is the last trial of limits that failed. Only the worker of the controller uses it.
	failed failedTrial

	placement   placement
	freshness   usageFreshness
	firstCounts firstCounts
	// unwritten has the reservations for which usage has not been written.
	unwritten knownReservations
	totals    *namespaceTotals
}

// usageFreshness is whether the cache is known to contain all usage that an earlier leader may have seen.
type usageFreshness struct {
	mu      sync.Mutex
	isFresh bool
}

// SetupWithManager starts the controller. It reconciles a policy space when its spec changes, and when the usage, the
// number or the place of the namespaces in it changes.
func (r *Spaces) SetupWithManager(mgr ctrl.Manager) error {
	r.requests, r.polls = r.Queues.NewRetrying("policyspace", backoff.FirstRetry), newPolls()
	r.totals.census.listener = r.enqueueCounted
	newQueue := func(string, backoff.Limiter) backoff.Queue { return r.requests }
	return ctrl.NewControllerManagedBy(mgr).Named("policyspace").
		For(&v1alpha1.PolicySpace{}, builder.WithPredicates(
			predicate.Funcs{UpdateFunc: r.enqueueEnding}, watch.MoreThanOwnStatus(&r.written))).
		Watches(&corev1.Namespace{}, r.namespaceHandler()).
		Watches(&corev1.ResourceQuota{}, handler.EnqueueRequestsFromMapFunc(r.enqueueOnUsage)).
		WatchesRawSource(r.Stored.Source(v1alpha1.WebhookName, r.enqueueOnWebhooks())).
		WithOptions(controller.Options{NewQueue: newQueue}).
		Complete(r.Caches.Before(r))
}

// enqueueCounted enqueues the policy spaces that limit the number of namespaces and that are some policy spaces, or
// above them.
func (r *Spaces) enqueueCounted(spaces []string) {
	forest, err := r.totals.cachedForest(context.Background())
	if err != nil {
		return // only before the cache has started
	}
	for _, name := range spaces {
		known := map[string]bool{}
		for at := forest.Get(name); at != nil && !known[at.Name]; at = forest.Get(at.Spec.Parent) {
			if known[at.Name] = true; quota.LimitsNamespaces(at) {
				r.enqueueAfter(countDelay, at.Name)
			}
		}
	}
}

// enqueueOnWebhooks returns a function that enqueues the policy spaces that restrict something: those that wait for the
// webhooks, and all if the webhooks were added or removed since its last call. The configuration also changes with the
// limits of each policy space.
func (r *Spaces) enqueueOnWebhooks() func(context.Context) []reconcile.Request {
	last := webhook.Deleted // nothing is reported then, and the operator may start without the configuration
	return func(ctx context.Context) []reconcile.Request {
		state, _ := r.Stored.State(ctx, v1alpha1.WebhookName, quotaPlugin) // the error is why it is Missing
		list := &v1alpha1.PolicySpaceList{}
		if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot find the policyspaces that a webhook configuration concerns")
			return nil
		}
		isChanged := state != last
		last = state
		var requests []reconcile.Request
		for i := range list.Items {
			space := &list.Items[i]
			if (isChanged || r.polls.NumRequeues(space.Name) > 0) && isRestricting(space) {
				r.polls.Forget(space.Name)
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(space)})
			}
		}
		return requests
	}
}

// enqueueEnding enqueues a PolicySpace with a delay after an update that leaves reservations or shares in its status,
// because the end of a share, or of a reservation that is never written, causes no event. It filters out no update.
func (r *Spaces) enqueueEnding(e event.UpdateEvent) bool {
	if space, ok := e.ObjectNew.(*v1alpha1.PolicySpace); ok && len(space.Status.Reservations)+
		len(space.Status.NamespaceReservations)+len(space.Status.SharedWith) > 0 {
		r.enqueueAfter(statusDelay, space.Name)
	}
	return true
}

// namespaceHandler enqueues the policy spaces in which a namespace is counted when the namespace is created, moves or
// is deleted. A created namespace has no usage yet, so its policy spaces can wait longer.
func (r *Spaces) namespaceHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ backoff.Queue) {
			r.enqueueSpacesOf(ctx, e.Object, statusDelay)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ backoff.Queue) {
			if !mayChangeSpaces(e) {
				return
			}
			delay := statusDelay
			if ns, ok := e.ObjectOld.(*corev1.Namespace); ok && len(hierarchy.OwnDepthLabels(ns)) > 0 {
				delay = usageDelay // its usage moves with it
			}
			r.enqueueSpacesOf(ctx, e.ObjectOld, delay)
			r.enqueueSpacesOf(ctx, e.ObjectNew, delay)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ backoff.Queue) {
			r.enqueueSpacesOf(ctx, e.Object, usageDelay)
		},
	}
}

// enqueueOnUsage enqueues the policy spaces in which the namespace of a ResourceQuota is counted. It returns no
// requests, because it adds them to the queue with a delay.
func (r *Spaces) enqueueOnUsage(ctx context.Context, usageQuota client.Object) []reconcile.Request {
	ns := &corev1.Namespace{}
	key := client.ObjectKey{Name: usageQuota.GetNamespace()}
	if r.Client.Get(ctx, key, ns, client.UnsafeDisableDeepCopy) == nil {
		r.enqueueSpacesOf(ctx, ns, usageDelay)
	}
	return nil
}

// enqueueSpacesOf enqueues the policy spaces in which a namespace is counted. Those that do not limit usage wait for at
// least statusDelay: when a policy space moves, thousands of namespaces enter and leave others within seconds.
func (r *Spaces) enqueueSpacesOf(ctx context.Context, object client.Object, delay time.Duration) {
	ns, ok := object.(*corev1.Namespace)
	if !ok {
		return
	}
	charged, err := chargedBy(ctx, r.Client, ns)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the policyspaces in which a namespace is counted", "namespace",
			ns.Name)
	}
	for _, name := range charged {
		wait := delay
		if space, err := getSpace(ctx, r.Client, name); err == nil && !hasQuota(space) {
			wait = max(delay, statusDelay)
		}
		r.enqueueAfter(wait, name)
	}
}

func (r *Spaces) enqueueAfter(delay time.Duration, spaces ...string) {
	for _, space := range spaces {
		r.requests.AddAfter(reconcile.Request{NamespacedName: client.ObjectKey{Name: space}}, delay)
	}
}

// mayChangeSpaces reports whether an update may change in which policy spaces a namespace is, or whether it is counted
// in them.
func mayChangeSpaces(e event.UpdateEvent) bool {
	before, isOldNamespace := e.ObjectOld.(*corev1.Namespace)
	after, isNewNamespace := e.ObjectNew.(*corev1.Namespace)
	return isOldNamespace && isNewNamespace &&
		(!maps.Equal(hierarchy.OwnDepthLabels(before), hierarchy.OwnDepthLabels(after)) ||
			before.Labels[v1alpha1.PolicySpaceLabel] != after.Labels[v1alpha1.PolicySpaceLabel] ||
			(before.DeletionTimestamp == nil) != (after.DeletionTimestamp == nil))
}

// Reconcile reads the hierarchy from the cache and updates the status of a policy space.
func (r *Spaces) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.updateForest(ctx, req.Name); err != nil {
		return reconcile.Result{}, err
	}
	isFresh, err := r.isFresh(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !isFresh {
		return reconcile.Result{RequeueAfter: freshnessPoll}, nil
	}
	space, err := r.written.Read(req.Name, func() (*v1alpha1.PolicySpace, error) {
		cached := &v1alpha1.PolicySpace{}
		return cached, r.Client.Get(ctx, req.NamespacedName, cached)
	})
	if err != nil {
		if apierrors.IsNotFound(err) {
			r.Metrics.deleteQuota(req.Name)
			r.polls.Forget(req.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return r.updateStatus(ctx, space)
}

// isFresh reports whether the cache contains every usage quota that existed when isFresh was called first. An earlier
// leader may have seen more usage than a late cache contains, and may have dropped the reservations for it. With a late
// cache, the status would undercount usage, and admission would allow too much.
func (r *Spaces) isFresh(ctx context.Context) (bool, error) {
	r.freshness.mu.Lock()
	defer r.freshness.mu.Unlock()
	if r.freshness.isFresh {
		return true, nil
	}
	list := &corev1.ResourceQuotaList{}
	stored, err := leadership.List(ctx, r.Client, r.Live, list,
		client.MatchingFields{metav1.ObjectNameField: v1alpha1.QuotaName})
	if err != nil {
		return false, err
	}
	if missing, err := stored.Missing(ctx, r.Client, list); err != nil || len(missing) > 0 {
		return false, err
	}
	r.freshness.isFresh = true
	r.firstCounts.start(time.Now())
	return true, nil
}

// expireFreshness makes the next call of isFresh compare the cache with the API server again.
func (r *Spaces) expireFreshness() {
	r.freshness.mu.Lock()
	defer r.freshness.mu.Unlock()
	r.freshness.isFresh = false
}
