package constraint

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
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
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/scc"
)

// References is the controller that removes deleted ServiceAccounts and Namespaces from the users and groups of
// SecurityContextConstraints, so that a user who creates an object of the same name may not use the constraint. An
// annotation of each constraint records the UIDs of the objects that it names. By that record, References also
// recognizes deletions that happened while no operator was running.
type References struct {
	*leadership.Leader
	Accounts *accountWatch

	// handler is called for ServiceAccounts while a constraint names one.
	handler *toolscache.ResourceEventHandlerFuncs

	mu sync.Mutex
	// namespaces and accounts are the objects that constraints name.
	namespaces map[string]bool
	accounts   map[types.NamespacedName]bool
}

// SetupWithManager adds a controller that reconciles all constraints together when one of them changes, and when an
// object that one names is created or deleted.
func (r *References) SetupWithManager(mgr ctrl.Manager) error {
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("sccreference").
		Watches(&v1alpha1.SecurityContextConstraints{}, enqueue).
		Watches(&corev1.Namespace{}, enqueue, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return r.namesNamespace(e.Object.GetName()) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() && r.namesNamespace(e.ObjectNew.GetName())
			},
			DeleteFunc: func(e event.DeleteEvent) bool { return r.namesNamespace(e.Object.GetName()) },
		})).
		WatchesRawSource(source.Func(func(_ context.Context, queue backoff.Queue) error {
			r.handler = watch.ChangeHandler(func(before, after *metav1.PartialObjectMetadata) {
				// It was deleted and created again while the watch was interrupted if it has another UID.
				if (before == nil || after == nil || before.UID != after.UID) && r.namesAccount(cmp.Or(after, before)) {
					queue.Add(reconcile.Request{})
				}
			})
			return nil
		})).
		WithOptions(controller.Options{NewQueue: r.Queues.New}).
		Complete(r.Caches.Before(r))
}

// Reconcile removes stale references from every constraint.
func (r *References) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	list := &v1alpha1.SecurityContextConstraintsList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	// Start the watches first, so that every later change enqueues the constraints again.
	if err := r.watch(ctx, list.Items); err != nil {
		return reconcile.Result{}, err
	}
	var errs []error
	for i := range list.Items {
		if err := r.removeStale(ctx, &list.Items[i]); err != nil {
			errs = append(errs,
				fmt.Errorf("remove stale references from SecurityContextConstraints %s: %w", list.Items[i].Name, err))
		}
	}
	return reconcile.Result{}, errors.Join(errs...)
}

// removeStale removes the stale references of one constraint. If the cache shows a stale reference, removeStale decides
// again by what the API server returns, because the cache may be late.
func (r *References) removeStale(ctx context.Context, constraint *v1alpha1.SecurityContextConstraints) error {
	from := func(reader client.Reader) func(scc.Reference) (scc.Identity, error) {
		return func(reference scc.Reference) (scc.Identity, error) { return identity(ctx, reader, reference) }
	}
	if changed, _, err := scc.RemoveStale(constraint, from(r.Client)); err != nil || changed == constraint {
		return err
	}
	changed, stale, err := scc.RemoveStale(constraint, from(r.Live))
	if err != nil || changed == constraint {
		return err
	}
	err = r.Client.Patch(ctx, changed, patch.WhileUnchanged(constraint))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the watch enqueues the newer version
	}
	if err != nil || len(stale) == 0 {
		return err
	}
	names := make([]string, len(stale))
	for i, reference := range stale {
		names[i] = reference.String()
	}
	r.Recorder.Eventf(constraint, nil, corev1.EventTypeNormal, "StaleReferencesRemoved", "RemoveStaleReferences",
		"removed from users and groups, because the objects were deleted: %s. To permit objects that were created again under "+
			"these names, add them again",
		strings.Join(names, ", "))
	ctrl.LoggerFrom(ctx).Info("removed stale references", "constraint", constraint.Name, "references", names)
	return nil
}

// identity returns the UIDs of the objects that a reference names.
func identity(ctx context.Context, from client.Reader, reference scc.Reference) (scc.Identity, error) {
	current := scc.Identity{}
	namespace := &corev1.Namespace{}
	err := from.Get(ctx, client.ObjectKey{Name: reference.Namespace}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return current, err
	}
	if current.Namespace = namespace.UID; reference.Account == "" {
		return current, nil
	}
	account := ServiceAccount()
	err = from.Get(ctx, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Account}, account)
	current.Account = account.UID
	return current, client.IgnoreNotFound(err)
}

// watch makes the watches of Namespaces and ServiceAccounts enqueue a request for the objects that constraints name.
func (r *References) watch(ctx context.Context, constraints []v1alpha1.SecurityContextConstraints) error {
	namespaces, accounts := map[string]bool{}, map[types.NamespacedName]bool{}
	for i := range constraints {
		for _, reference := range scc.References(&constraints[i]) {
			namespaces[reference.Namespace] = true
			if reference.Account != "" {
				accounts[types.NamespacedName{Namespace: reference.Namespace, Name: reference.Account}] = true
			}
		}
	}
	r.mu.Lock()
	r.namespaces, r.accounts = namespaces, accounts
	r.mu.Unlock()
	return r.Accounts.need(ctx, r.handler, len(accounts) > 0)
}

func (r *References) namesAccount(account *metav1.PartialObjectMetadata) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.accounts[client.ObjectKeyFromObject(account)]
}

func (r *References) namesNamespace(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.namespaces[name]
}
