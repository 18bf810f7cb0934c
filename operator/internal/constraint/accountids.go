package constraint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/scc"
)

// accountWorkers is the number of namespaces whose ServiceAccounts are given user IDs at the same time.
const accountWorkers = 8

// accountManager is the field manager of AccountUIDAnnotation. It differs from that of populated ServiceAccounts.
const accountManager = v1alpha1.FieldManager + "-account"

// AccountIDs is the controller that gives each ServiceAccount a user ID of its own among those of its namespace, while
// a constraint has MustRunAsServiceAccount. It writes the next ID to the namespace before it gives one away, so that
// another leader continues after it, and the ID of a deleted ServiceAccount is given again as late as possible.
type AccountIDs struct {
	*leadership.Leader
	Accounts *accountWatch
	// Exempt lists the namespaces whose ServiceAccounts are given nothing.
	Exempt      []string
	Constraints *constraintCache

	// handler enqueues the namespaces of ServiceAccounts.
	handler *toolscache.ResourceEventHandlerFuncs

	// mu is held for reading while ServiceAccounts are read from the cache, and for writing while the watch is started
	// or ended.
	mu       sync.RWMutex
	isNeeded bool
}

// SetupWithManager adds a controller that reconciles a namespace when one of its ServiceAccounts is created or loses
// its user ID, and when the namespace is given other IDs. The request without a name is for the watch of
// ServiceAccounts.
func (r *AccountIDs) SetupWithManager(mgr ctrl.Manager) error {
	idOf := func(account client.Object) string { return account.GetAnnotations()[v1alpha1.AccountUIDAnnotation] }
	return ctrl.NewControllerManagedBy(mgr).Named("accountid").
		For(&corev1.Namespace{}, builder.WithPredicates(changesIDs)).
		WatchesRawSource(source.Func(func(_ context.Context, queue backoff.Queue) error {
			r.handler = watch.ChangeHandler(func(before, after *metav1.PartialObjectMetadata) {
				// The ID of a deleted one is free again, for one that has none.
				if before == nil || after == nil || before.UID != after.UID || idOf(before) != idOf(after) {
					namespace := cmp.Or(after, before).Namespace
					queue.Add(reconcile.Request{NamespacedName: client.ObjectKey{Name: namespace}})
				}
			})
			r.Constraints.Changes.Listen(func() { queue.Add(reconcile.Request{}) })
			queue.Add(reconcile.Request{})
			return nil
		})).
		WithOptions(controller.Options{MaxConcurrentReconciles: accountWorkers, NewQueue: r.Queues.New}).
		Complete(r.Caches.Before(r))
}

// changesIDs selects the events by which a namespace has other IDs than before. It may begin with IDs, and its
// ServiceAccounts may arrive before it. While the watch was interrupted, it may have been deleted and created again.
var changesIDs = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool { return idsOf(e.Object) != "" },
	UpdateFunc: func(e event.UpdateEvent) bool {
		return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() || idsOf(e.ObjectOld) != idsOf(e.ObjectNew)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

func idsOf(ns client.Object) string { return ns.GetAnnotations()[v1alpha1.UIDRangeAnnotation] }

// Reconcile gives the ServiceAccounts of a namespace the user IDs that they lack.
func (r *AccountIDs) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if request.Name == "" {
		return reconcile.Result{}, r.watchIfNeeded(ctx)
	}
	ns := &corev1.Namespace{}
	if err := r.Client.Get(ctx, request.NamespacedName, ns); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if ns.UID == "" || ns.DeletionTimestamp != nil || slices.Contains(r.Exempt, ns.Name) ||
		ns.Name == v1alpha1.TrialNamespace {
		return reconcile.Result{}, nil // in the namespace of trials, nothing is changed
	}
	lacking, err := r.isLacking(ctx, ns)
	if err != nil || !lacking {
		return reconcile.Result{}, err
	}
	err = r.allocate(ctx, ns)
	switch {
	case patch.IsStale(err):
		return reconcile.Result{RequeueAfter: retryStale}, nil
	case errors.Is(err, scc.ErrBlockExhausted):
		r.Recorder.Eventf(reporting.InNamespace(ns), nil, corev1.EventTypeWarning, scc.ReasonBlockExhausted, "Allocate",
			"%s", reporting.Shorten(err.Error()))
	}
	return reconcile.Result{}, err
}

// watchIfNeeded starts the watch of ServiceAccounts if a constraint has MustRunAsServiceAccount, or else ends it.
func (r *AccountIDs) watchIfNeeded(ctx context.Context) error {
	constraints, err := r.Constraints.get(ctx)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.isNeeded = slices.ContainsFunc(constraints, func(c *v1alpha1.SecurityContextConstraints) bool {
		return c.RunAsUser.Type == v1alpha1.MustRunAsServiceAccount
	})
	return r.Accounts.need(ctx, r.handler, r.isNeeded)
}

// isLacking reports whether a ServiceAccount of a namespace needs a user ID, as the cache has it.
func (r *AccountIDs) isLacking(ctx context.Context, ns *corev1.Namespace) (bool, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if !r.isNeeded {
		return false, nil // a list would start the watch
	}
	allocations, _, err := accountAllocations(ctx, r.Client, ns)
	if errors.Is(err, scc.ErrBlockExhausted) {
		return true, nil
	}
	return len(allocations) > 0, err
}

// allocate gives user IDs to the ServiceAccounts that exist in the API server, because the cache may lack the newest
// ones and the IDs that they have.
func (r *AccountIDs) allocate(ctx context.Context, ns *corev1.Namespace) error {
	allocations, next, exhausted := accountAllocations(ctx, r.Live, ns)
	if len(allocations) == 0 {
		return exhausted
	}
	reservation := patch.Tested{}.Test("/metadata/uid", ns.UID).SetIn("/metadata/annotations", ns.Annotations,
		map[string]string{v1alpha1.NextAccountUIDAnnotation: strconv.FormatInt(next, 10)}, v1alpha1.UIDRangeAnnotation)
	target := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
	if err := r.Client.Status().Patch(ctx, target, reservation); err != nil {
		return client.IgnoreNotFound(err)
	}
	errs := []error{exhausted}
	for _, allocation := range allocations {
		errs = append(errs, r.write(ctx, ns, allocation))
	}
	return firstExceptStale(errs)
}

// firstExceptStale returns the errors joined. If all are rejections of patches of objects that had changed, it returns
// one of these.
func firstExceptStale(errs []error) error {
	var stale error
	others := slices.DeleteFunc(errs, func(err error) bool {
		if patch.IsStale(err) {
			stale = err
		}
		return patch.IsStale(err)
	})
	if err := errors.Join(others...); err != nil {
		return err
	}
	return stale
}

// write annotates a ServiceAccount unless it is another one by now, or has another ID.
func (r *AccountIDs) write(ctx context.Context, ns *corev1.Namespace, allocation scc.AccountAllocation) error {
	target := ServiceAccount()
	target.Namespace, target.Name = ns.Name, allocation.Account.Name
	change := patch.Tested{}.Test("/metadata/uid", allocation.Account.UID).SetIn("/metadata/annotations",
		allocation.Account.Annotations,
		map[string]string{v1alpha1.AccountUIDAnnotation: strconv.FormatInt(allocation.ID, 10)})
	err := r.Client.Patch(ctx, target, change, client.FieldOwner(accountManager))
	switch {
	case client.IgnoreNotFound(err) != nil:
		return fmt.Errorf("allocate a user ID to service account %s/%s: %w", ns.Name, allocation.Account.Name, err)
	case err == nil && allocation.Repairs != "":
		r.Recorder.Eventf(reporting.InNamespace(ns), nil, corev1.EventTypeWarning, "AccountIDRepaired", "Allocate",
			"allocated user ID %d to service account %s: %s. Running pods keep their user IDs: restart them", allocation.ID,
			allocation.Account.Name, allocation.Repairs)
	}
	return nil
}

// accountAllocations returns the user IDs that the ServiceAccounts of a namespace lack, and the next ID. It returns
// none for a namespace that has no IDs yet: these enqueue it.
func accountAllocations(
	ctx context.Context, from client.Reader, ns *corev1.Namespace,
) ([]scc.AccountAllocation, int64, error) {
	list := serviceAccounts()
	if err := from.List(ctx, list, client.InNamespace(ns.Name)); err != nil {
		return nil, 0, fmt.Errorf("list the service accounts of namespace %s: %w", ns.Name, err)
	}
	allocations, next, err := scc.AllocateAccounts(ns.Annotations, list.Items)
	if _, isMissing := errors.AsType[*scc.Missing](err); isMissing {
		return nil, 0, nil
	}
	if err != nil {
		err = fmt.Errorf("namespace %s: %w", ns.Name, err)
	}
	return allocations, next, err
}
