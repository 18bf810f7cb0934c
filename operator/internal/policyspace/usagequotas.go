package policyspace

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// usageQuotaWorkers is how many namespaces are reconciled at the same time.
	usageQuotaWorkers = 16
	// statusHardDelay is how long status.hard may differ from spec.hard in the cache after the operator wrote both.
	statusHardDelay = time.Second
	// secondCountDelay is how long no usage must be charged before the API server counts for the second time. The first
	// count may miss objects: they were created too early to be charged, and too late for the cache of the controller
	// that counts. The second count would miss objects that are charged and not created yet.
	secondCountDelay = time.Second
)

// UsageQuotas is the controller of usage quotas, the ResourceQuotas in which the API server counts the usage of
// namespaces. It keeps one in each namespace that is in a policy space with a quota.
type UsageQuotas struct {
	*leadership.Leader
	// Quotas reads all ResourceQuotas from the API server.
	Quotas corev1client.ResourceQuotasGetter
	// Members finds the namespaces of policy spaces.
	Members members
	// Namespaces is the queue of the controller of namespaces. It opens a namespace once its usage is counted.
	Namespaces *queue.Queue

	mu sync.Mutex
	// chargedAt is when usage was charged last in namespaces that are to be counted again.
	chargedAt map[string]time.Time
	// waiting are the namespaces of which Counted has said that they are not counted.
	waiting map[string]bool
}

// SetupWithManager starts the controller. It reconciles a namespace when its policy spaces change, and when the
// resources in its usage quota do.
func (r *UsageQuotas) SetupWithManager(mgr ctrl.Manager) error {
	r.chargedAt, r.waiting = map[string]time.Time{}, map[string]bool{}
	return ctrl.NewControllerManagedBy(mgr).Named("policyspacequota").
		For(&corev1.Namespace{}, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: mayChangeSpaces,
		})).
		Watches(&v1alpha1.PolicySpace{}, handler.EnqueueRequestsFromMapFunc(r.namespacesOf),
			builder.WithPredicates(predicate.Funcs{
				CreateFunc: func(e event.CreateEvent) bool { return !e.IsInInitialList }, // as all namespaces are
				UpdateFunc: func(e event.UpdateEvent) bool {
					return watch.MoreThanStatus(e) || !slices.Equal(withShares(e.ObjectOld), withShares(e.ObjectNew))
				},
			})).
		Watches(&corev1.ResourceQuota{}, handler.EnqueueRequestsFromMapFunc(namespaceOf),
			builder.WithPredicates(predicate.Funcs{UpdateFunc: r.isUpdateReconciled})).
		WithOptions(controller.Options{MaxConcurrentReconciles: usageQuotaWorkers, NewQueue: r.Queues.New}).
		Complete(r.Caches.Before(r))
}

// namespacesOf returns requests for the namespaces in and below a policy space and those with which it shares usage,
// and for those that are about to move there.
func (r *UsageQuotas) namespacesOf(ctx context.Context, space client.Object) []reconcile.Request {
	forest, _, err := readForest(ctx, r.Client)
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the policyspaces")
	}
	var requests []reconcile.Request
	for _, name := range withShares(space) {
		for _, ns := range slices.Concat(r.Members.inside(name), r.Members.entering(forest, name)) {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: ns.Name}})
		}
	}
	return requests
}

func namespaceOf(_ context.Context, usageQuota client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: usageQuota.GetNamespace()}}}
}

// isUpdateReconciled reports whether an update of a usage quota changes more than the usage. It remembers when usage
// was charged.
func (r *UsageQuotas) isUpdateReconciled(e event.UpdateEvent) bool {
	before, isOldQuota := e.ObjectOld.(*corev1.ResourceQuota)
	after, isNewQuota := e.ObjectNew.(*corev1.ResourceQuota)
	if !isOldQuota || !isNewQuota {
		return false
	}
	r.rememberCharge(before, after)
	return changesResources(before, after)
}

// changesResources reports whether two states of a usage quota differ in the resources that they limit or count, or in
// whether they are intact.
func changesResources(before, after *corev1.ResourceQuota) bool {
	return !slices.Equal(resources(before.Spec.Hard), resources(after.Spec.Hard)) ||
		!slices.Equal(resources(before.Status.Hard), resources(after.Status.Hard)) ||
		!slices.Equal(resources(before.Status.Used), resources(after.Status.Used)) ||
		isIntact(before) != isIntact(after)
}

// resources returns the names in a list, in ascending order.
func resources(list corev1.ResourceList) []corev1.ResourceName { return slices.Sorted(maps.Keys(list)) }

// rememberCharge remembers when usage changed in a namespace that is to be counted again.
func (r *UsageQuotas) rememberCharge(before, after *corev1.ResourceQuota) {
	if equality.Semantic.DeepEqual(before.Status.Used, after.Status.Used) {
		return
	}
	if _, isRecounted := after.Spec.Hard[v1alpha1.RecountResource]; isRecounted {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.chargedAt[after.Namespace] = time.Now()
	}
}

func (r *UsageQuotas) forgetCharge(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.chargedAt, namespace)
}

// quietSince returns since when no usage was charged in a namespace that is to be counted again.
func (r *UsageQuotas) quietSince(usageQuota *corev1.ResourceQuota) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := recountedAt(usageQuota)
	if charged := r.chargedAt[usageQuota.Namespace]; charged.After(since) {
		return charged
	}
	return since
}

// Reconcile creates, changes or deletes the usage quota of a namespace.
func (r *UsageQuotas) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, req.NamespacedName, ns); err != nil || ns.DeletionTimestamp != nil {
		r.forgetCharge(req.Name)
		r.setWaiting(req.Name, false)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	want, err := r.limitsOf(ctx, ns)
	if err != nil {
		return reconcile.Result{}, err
	}
	if len(want) == 0 && r.setWaiting(ns.Name, false) { // for limits that were removed
		r.Namespaces.Enqueue(queue.Opening, 0, ns.Name)
	}
	usageQuota := &corev1.ResourceQuota{}
	err = r.Client.Get(ctx, usageQuotaKey(ns.Name), usageQuota)
	switch {
	case apierrors.IsNotFound(err) && len(want) == 0:
		return reconcile.Result{}, nil
	case apierrors.IsNotFound(err):
		return reconcile.Result{}, r.create(ctx, ns, firstLimits(ns, want))
	case err != nil:
		return reconcile.Result{}, err
	case len(want) == 0:
		return reconcile.Result{}, r.remove(ctx, usageQuota)
	case !isIntact(usageQuota):
		return reconcile.Result{}, r.repair(ctx, ns, usageQuota, withRecount(want))
	}
	if initialize.Initializing(ns) {
		r.Namespaces.Enqueue(queue.Opening, 0, ns.Name)
	}
	limits, wait := nextLimits(usageQuota, want, r.quietSince(usageQuota))
	if limits == nil {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	if err := r.change(ctx, usageQuota, limits); err != nil {
		return reconcile.Result{}, err
	}
	if slices.Equal(resources(limits), resources(want)) {
		r.forgetCharge(ns.Name)
	}
	return reconcile.Result{}, nil
}

// firstLimits returns the limits with which the usage quota of a namespace is created. It requests a second count if
// objects may exist that the first count misses: if requests may no longer wait for the first count, and if Kubernetes
// or templates create objects of a limited resource in every namespace.
func firstLimits(ns *corev1.Namespace, want corev1.ResourceList) corev1.ResourceList {
	isLate := time.Since(ns.CreationTimestamp.Time) > uncountableTime
	if isLate || !initialize.Initializing(ns) || slices.ContainsFunc(resources(want), quota.MayPrecedeCounting) {
		return withRecount(want)
	}
	return want
}

// nextLimits returns the limits that an intact usage quota gets next, so that the API server counts all wanted
// resources. If it returns nil, the usage quota needs no write now, and wait is when to reconcile it again: 0 if only
// events require it. quietSince is since when no usage was charged.
//
// Resources are added together with the RecountResource. It is removed again after a quiet time, which makes the API
// server count for the second time.
func nextLimits(
	usageQuota *corev1.ResourceQuota, want corev1.ResourceList, quietSince time.Time,
) (limits corev1.ResourceList, wait time.Duration) {
	current := resources(usageQuota.Spec.Hard)
	if !slices.Equal(current, resources(usageQuota.Status.Hard)) {
		if left := statusHardDelay - time.Since(recountedAt(usageQuota)); left > 0 {
			return nil, left
		}
		return withRecount(want), 0
	}
	if slices.Equal(current, resources(want)) {
		return nil, untilUncountable(usageQuota)
	}
	if !slices.Equal(current, resources(withRecount(want))) {
		return withRecount(want), 0
	}
	if left := secondCountDelay - time.Since(quietSince); left > 0 {
		return nil, left
	}
	return want, 0
}

// withRecount adds the RecountResource, of which no object exists. Its removal makes the API server count again.
func withRecount(want corev1.ResourceList) corev1.ResourceList {
	limits := maps.Clone(want)
	limits[v1alpha1.RecountResource] = resource.Quantity{}
	return limits
}

// limitsOf returns the limits of the usage quota of a namespace. They are empty if no policy space above the namespace
// has a quota.
func (r *UsageQuotas) limitsOf(ctx context.Context, ns *corev1.Namespace) (corev1.ResourceList, error) {
	charged, err := chargedBy(ctx, r.Client, ns)
	if err != nil {
		return nil, err
	}
	var spaces []*v1alpha1.PolicySpace
	for _, name := range charged {
		space, err := getSpace(ctx, r.Client, name)
		if err != nil {
			return nil, err
		}
		if space != nil {
			spaces = append(spaces, space)
		}
	}
	return quota.Counted(spaces), nil
}

// Counted reports whether the API server has counted all resources in a namespace that its policy spaces limit.
func (r *UsageQuotas) Counted(ctx context.Context, ns *corev1.Namespace) (bool, error) {
	r.setWaiting(ns.Name, true) // before the limits are read: Reconcile may find at any time that there are none
	want, err := r.limitsOf(ctx, ns)
	if err != nil {
		return false, err
	}
	usageQuota := &corev1.ResourceQuota{}
	if len(want) > 0 {
		err := r.Client.Get(ctx, usageQuotaKey(ns.Name), usageQuota, client.UnsafeDisableDeepCopy)
		if err != nil {
			return false, client.IgnoreNotFound(err)
		}
	}
	isCounted := containsAll(countedUsage(usageQuota), want)
	if isCounted {
		r.setWaiting(ns.Name, false)
	}
	return isCounted, nil
}

// setWaiting records whether a namespace waits until its usage is counted, and reports whether it did before.
func (r *UsageQuotas) setWaiting(namespace string, waits bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	waited := r.waiting[namespace]
	delete(r.waiting, namespace)
	if waits {
		r.waiting[namespace] = true
	}
	return waited
}
