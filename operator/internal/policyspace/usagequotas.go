package policyspace

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/population/queue"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/quota"
)

// counterNote explains to those who find it in their namespace what the ResourceQuota is.
const counterNote = "The API server counts here what the quotas of policyspaces limit. The limits are theirs: kubectl get policyspaces."

// Quotas sees to it that the API server counts in each namespace that is under the quota of a policyspace.
type UsageQuotas struct {
	Client client.Client
	// Queue is that of the namespaces, which are not opened before it counts in them.
	Queue *queue.Queue
	// Caches are as new as the leadership before anything is done.
	Caches *leadership.Caches
	// Queues makes the controller's queue.
	Queues *backoff.Queues

	mu sync.Mutex
	// touched are namespaces that are to be counted again, and when something was charged there last.
	touched map[string]time.Time
}

// SetupWithManager has namespaces looked at as their policyspaces change, and as what is counted does.
func (r *UsageQuotas) SetupWithManager(mgr ctrl.Manager) error {
	r.touched = map[string]time.Time{}
	below := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, space client.Object) []reconcile.Request {
		var found []reconcile.Request
		for _, name := range withShares(space) {
			list := &corev1.NamespaceList{}
			if err := r.Client.List(ctx, list, client.MatchingFields{placeIndex: insidePlace + name},
				client.UnsafeDisableDeepCopy); err != nil {
				ctrl.LoggerFrom(ctx).Error(err, "can't list the namespaces of a policyspace", "policyspace", name)
			}
			for i := range list.Items {
				found = append(found, reconcile.Request{NamespacedName: client.ObjectKey{Name: list.Items[i].Name}})
			}
		}
		return found
	})
	inside := handler.EnqueueRequestsFromMapFunc(func(_ context.Context, counter client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: client.ObjectKey{Name: counter.GetNamespace()}}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("policyspacequota").
		For(&corev1.Namespace{}, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: moved,
			DeleteFunc: func(event.DeleteEvent) bool { return false },
		})).
		Watches(&v1alpha1.PolicySpace{}, below,
			builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
				return watch.MoreThanStatus(e) || !slices.Equal(withShares(e.ObjectOld), withShares(e.ObjectNew))
			}})).
		Watches(&corev1.ResourceQuota{}, inside, builder.WithPredicates(predicate.Funcs{
			UpdateFunc: func(e event.UpdateEvent) bool {
				r.touch(e.ObjectOld, e.ObjectNew)
				return countsOf(e.ObjectOld) != countsOf(e.ObjectNew)
			},
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: usageWorkers, NewQueue: r.Queues.New}).
		Complete(r.Caches.Before(r))
}

// usageWorkers is how many namespaces are reconciled at once.
const usageWorkers = 16

// countsOf returns what of a ResourceQuota says which resources are counted, and whether it is as the operator wrote
// it.
func countsOf(object client.Object) string {
	counter, ok := object.(*corev1.ResourceQuota)
	if !ok {
		return ""
	}
	return fmt.Sprint(resources(counter.Spec.Hard), resources(counter.Status.Hard), resources(counter.Status.Used),
		IsIntact(counter))
}

func resources(list corev1.ResourceList) []corev1.ResourceName { return slices.Sorted(maps.Keys(list)) }

// Reconcile makes, changes or deletes the ResourceQuota of a namespace.
func (r *UsageQuotas) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, req.NamespacedName, ns); err != nil || ns.DeletionTimestamp != nil {
		r.forget(req.Name)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	want, err := r.wanted(ctx, ns)
	if err != nil {
		return reconcile.Result{}, err
	}
	counter := &corev1.ResourceQuota{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: v1alpha1.QuotaName}, counter)
	switch {
	case apierrors.IsNotFound(err) && len(want) == 0:
		return reconcile.Result{}, nil
	case apierrors.IsNotFound(err):
		// those who create something there may have stopped waiting
		late := time.Since(ns.CreationTimestamp.Time) > Uncountable
		if late || !initialize.Initializing(ns) || slices.ContainsFunc(resources(want), quota.Early) {
			want = withRecount(want)
		}
		return reconcile.Result{}, r.create(ctx, ns, want)
	case err != nil:
		return reconcile.Result{}, err
	case len(want) == 0:
		return reconcile.Result{}, r.remove(ctx, counter)
	case !IsIntact(counter):
		return reconcile.Result{}, r.repair(ctx, ns, counter, withRecount(want))
	}
	if initialize.Initializing(ns) {
		r.Queue.AddWaiting(ns.Name, 0)
	}
	limits := resources(counter.Spec.Hard)
	if !slices.Equal(limits, resources(counter.Status.Hard)) {
		if left := settleTime - time.Since(ToldAt(counter)); left > 0 {
			return reconcile.Result{RequeueAfter: left}, nil // the cache may not have what was written last
		}
		return reconcile.Result{}, r.change(ctx, counter, withRecount(want))
	}
	if slices.Equal(limits, resources(want)) {
		return reconcile.Result{RequeueAfter: untilUncountable(counter)}, nil
	}
	if !slices.Equal(limits, resources(withRecount(want))) {
		return reconcile.Result{}, r.change(ctx, counter, withRecount(want))
	}
	if left := secondCountDelay - time.Since(r.quietSince(counter)); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	if err := r.change(ctx, counter, want); err != nil {
		return reconcile.Result{}, err
	}
	r.forget(ns.Name)
	return reconcile.Result{}, nil
}

// settleTime is how long what is enforced may differ from what is counted after the operator wrote both.
const settleTime = time.Second

// recountDelay is how far the API server's controller may be behind when it counts for the first time: what was created
// just before it was told to count may have been created too early to be charged, and too late to be seen. Then it
// counts again, when nothing was charged for as long: what is charged and not created yet it would miss.
const secondCountDelay = time.Second

// touch notes that something was charged in a namespace which is to be counted again.
func (r *UsageQuotas) touch(before, after client.Object) {
	old, isOld := before.(*corev1.ResourceQuota)
	counter, isNew := after.(*corev1.ResourceQuota)
	if !isOld || !isNew || equality.Semantic.DeepEqual(old.Status.Used, counter.Status.Used) {
		return
	}
	if _, again := counter.Spec.Hard[v1alpha1.RecountResource]; again {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.touched[counter.Namespace] = time.Now()
	}
}

func (r *UsageQuotas) forget(namespace string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.touched, namespace)
}

// quietSince returns since when nothing was charged in a namespace.
func (r *UsageQuotas) quietSince(counter *corev1.ResourceQuota) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	since := ToldAt(counter)
	if touched := r.touched[counter.Namespace]; touched.After(since) {
		return touched
	}
	return since
}

// untilUncountable is how long it takes until what is not counted yet is taken for uncountable; 0 if all is counted.
func untilUncountable(counter *corev1.ResourceQuota) time.Duration {
	used := CountedUsage(counter)
	for name := range counter.Spec.Hard {
		if _, counted := used[name]; !counted && MayBeUncountable(name) {
			return max(Uncountable-time.Since(ToldAt(counter)), 0) + time.Millisecond
		}
	}
	return 0
}

// withRecount adds a resource that there is none of. When it is taken away, the API server's controller counts again.
func withRecount(want corev1.ResourceList) corev1.ResourceList {
	again := maps.Clone(want)
	again[v1alpha1.RecountResource] = resource.Quantity{}
	return again
}

// wanted returns the limits of a namespace's ResourceQuota: none if it is under no quota.
func (r *UsageQuotas) wanted(ctx context.Context, ns *corev1.Namespace) (corev1.ResourceList, error) {
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

// create does no harm if it comes late from an earlier leader: the ResourceQuota of a namespace that is under no quota
// any more is deleted as its creation is seen, and one that limits something else is changed.
func (r *UsageQuotas) create(ctx context.Context, ns *corev1.Namespace, want corev1.ResourceList) error {
	counter := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ns.Name, Name: v1alpha1.QuotaName,
			Labels:      map[string]string{ManagedByLabel: ManagedBy},
			Annotations: map[string]string{"description": counterNote, v1alpha1.RecountAnnotation: RecountNow()},
		},
		Spec: corev1.ResourceQuotaSpec{Hard: want},
	}
	err := r.Client.Create(ctx, counter)
	switch {
	case apierrors.IsNotFound(err), apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return nil
	case err != nil:
		return fmt.Errorf("have the API server count in namespace %s: %w", ns.Name, err)
	}
	return r.enforce(ctx, counter, want)
}

// remove deletes the ResourceQuota of a namespace that is under no quota, if it is the operator's. If the deletion
// comes late from an earlier leader, what the quota limits is refused until the ResourceQuota is made again.
func (r *UsageQuotas) remove(ctx context.Context, counter *corev1.ResourceQuota) error {
	if counter.Labels[ManagedByLabel] != ManagedBy {
		return nil
	}
	return client.IgnoreNotFound(r.Client.Delete(ctx, counter, client.Preconditions{UID: &counter.UID}))
}

// repair makes a ResourceQuota that somebody changed, or created, what the operator writes. The API server counts anew.
func (r *UsageQuotas) repair(
	ctx context.Context, ns *corev1.Namespace, counter *corev1.ResourceQuota, want corev1.ResourceList,
) error {
	ctrl.LoggerFrom(ctx).Info("repairing the ResourceQuota that counts for policyspaces", "namespace", ns.Name)
	if !MustBeReplaced(counter) {
		return r.change(ctx, counter, want)
	}
	if err := r.Client.Delete(ctx, counter,
		client.Preconditions{UID: &counter.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("replace ResourceQuota %s of namespace %s: %w", counter.Name, ns.Name, err)
	}
	return r.create(ctx, ns, want)
}

func (r *UsageQuotas) change(ctx context.Context, counter *corev1.ResourceQuota, want corev1.ResourceList) error {
	changed := counter.DeepCopy()
	err := r.Client.Patch(ctx, changed, limitsPatch(counter, want))
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case patch.IsStale(err):
		return fmt.Errorf("ResourceQuota %s of namespace %s was changed meanwhile: it is looked at again: %w",
			counter.Name, counter.Namespace, err)
	case err != nil:
		return fmt.Errorf("change ResourceQuota %s of namespace %s: %w", counter.Name, counter.Namespace, err)
	}
	return r.enforce(ctx, changed, want)
}

// limitsPatch changes nothing if the limits are not those that were seen. What is used changes all the time, so it does
// not go by the resourceVersion.
func limitsPatch(counter *corev1.ResourceQuota, want corev1.ResourceList) client.Patch {
	var limits any
	if len(counter.Spec.Hard) > 0 {
		limits = counter.Spec.Hard
	}
	return patch.Tested{}.Test("/metadata/uid", counter.UID).Test("/spec/hard", limits).
		SetIn("/metadata/labels", counter.Labels, map[string]string{ManagedByLabel: ManagedBy}).
		SetIn("/metadata/annotations", counter.Annotations, map[string]string{
			"description": counterNote, v1alpha1.RecountAnnotation: RecountNow(),
		}).
		Set("/spec/hard", want)
}

// enforce has the API server go by the limits at once. What it has not counted yet it then refuses, and does not let in
// uncounted. Late from an earlier leader, it does no harm: what is not among the limits in force counts as unknown, so
// it is refused, and the limits in force are compared with the declared ones as they change.
func (r *UsageQuotas) enforce(ctx context.Context, counter *corev1.ResourceQuota, want corev1.ResourceList) error {
	hard := map[corev1.ResourceName]any{}
	for name := range counter.Status.Hard {
		hard[name] = nil
	}
	for name, limit := range want {
		hard[name] = limit
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": counter.UID}, "status": map[string]any{"hard": hard},
	})
	if err != nil {
		return err
	}
	target := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: counter.Namespace, Name: counter.Name}}
	err = r.Client.Status().Patch(ctx, target, client.RawPatch(types.MergePatchType, body))
	return client.IgnoreNotFound(err)
}

// Counted tells whether all that the quotas of a namespace's policyspaces limit is counted in it.
func (r *UsageQuotas) Counted(ctx context.Context, ns *corev1.Namespace) (bool, error) {
	want, err := r.wanted(ctx, ns)
	if err != nil || len(want) == 0 {
		return err == nil, err
	}
	counter := &corev1.ResourceQuota{}
	err = r.Client.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: v1alpha1.QuotaName}, counter,
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	used := CountedUsage(counter)
	for name := range want {
		if _, counted := used[name]; !counted {
			return false, nil
		}
	}
	return true, nil
}
