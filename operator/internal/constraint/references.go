package constraint

import (
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
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
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
	"nstpl.dev/nstpl/operator/scc"
)

// References removes deleted ServiceAccounts and Namespaces from the users and groups of SecurityContextConstraints, so
// that whoever creates an object of the same name inherits no constraint. Each constraint records the UIDs of what it
// names. Deletions that happened while no operator was running are found by that record.
type References struct {
	Client client.Client
	// Live reads from the API server.
	Live     client.Reader
	Cache    cache.Cache
	Recorder events.EventRecorder
	// Caches are as new as the leadership before anything is done.
	Caches *leadership.Caches
	// Queues makes the controller's queue.
	Queues *backoff.Queues

	queue backoff.Queue
	// watching is whether ServiceAccounts are watched: only while a constraint names one.
	watching bool

	mu sync.Mutex
	// namespaces and accounts are those that constraints name.
	namespaces map[string]bool
	accounts   map[types.NamespacedName]bool
}

// SetupWithManager has all constraints reconciled together when one of them changes, and when an object that one names
// is created or deleted.
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
			r.queue = queue
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
	// First, so that every change after it is queued.
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

// removeStale decides by the cache whether there is anything to do, and what to do by the API server: a cache may be
// late.
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
		return nil // the watch brings the newer one
	}
	if err != nil || len(stale) == 0 {
		return err
	}
	names := make([]string, len(stale))
	for i, reference := range stale {
		names[i] = reference.String()
	}
	r.Recorder.Eventf(constraint, nil, corev1.EventTypeNormal, "StaleReferencesRemoved", "RemoveStaleReferences",
		"removed from users and groups, since the object was deleted: %s. If it was created again, add it again",
		strings.Join(names, ", "))
	ctrl.LoggerFrom(ctx).Info("removed stale references", "constraint", constraint.Name, "references", names)
	return nil
}

// identity reads the UIDs of the objects that a reference names.
func identity(ctx context.Context, from client.Reader, reference scc.Reference) (scc.Identity, error) {
	found := scc.Identity{}
	namespace := &corev1.Namespace{}
	err := from.Get(ctx, client.ObjectKey{Name: reference.Namespace}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return found, err
	}
	if found.Namespace = namespace.UID; reference.Account == "" {
		return found, nil
	}
	account := ServiceAccount()
	err = from.Get(ctx, client.ObjectKey{Namespace: reference.Namespace, Name: reference.Account}, account)
	found.Account = account.UID
	return found, client.IgnoreNotFound(err)
}

// ServiceAccount returns the type of ServiceAccounts as the cache of a manager keeps them: their metadata.
func ServiceAccount() *metav1.PartialObjectMetadata {
	account := &metav1.PartialObjectMetadata{}
	account.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccount"))
	return account
}

// IdentityOnly keeps of an object what identifies it. A cluster has tens of thousands of ServiceAccounts.
func IdentityOnly(object any) (any, error) {
	if found, ok := object.(*metav1.PartialObjectMetadata); ok {
		found.ObjectMeta = metav1.ObjectMeta{
			Namespace: found.Namespace, Name: found.Name, UID: found.UID, ResourceVersion: found.ResourceVersion,
		}
	}
	return object, nil
}

// watch has the watches of Namespaces and ServiceAccounts report what constraints name. ServiceAccounts are watched
// only while a constraint names one.
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
	switch needed := len(accounts) > 0; {
	case needed == r.watching:
		return nil
	case !needed:
		r.watching = false
		return r.Cache.RemoveInformer(ctx, ServiceAccount())
	}
	informer, err := r.Cache.GetInformer(ctx, ServiceAccount())
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: r.enqueueAccount, UpdateFunc: r.enqueueReplaced, DeleteFunc: r.enqueueAccount,
	})
	r.watching = err == nil
	return err
}

func (r *References) enqueueAccount(object any) {
	if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = missed.Obj
	}
	account, ok := object.(*metav1.PartialObjectMetadata)
	if !ok {
		return
	}
	r.mu.Lock()
	named := r.accounts[types.NamespacedName{Namespace: account.Namespace, Name: account.Name}]
	r.mu.Unlock()
	if named {
		r.queue.Add(reconcile.Request{})
	}
}

// enqueueReplaced enqueues a ServiceAccount that was deleted and created again while the watch was interrupted.
func (r *References) enqueueReplaced(old, updated any) {
	before, _ := old.(*metav1.PartialObjectMetadata)
	after, _ := updated.(*metav1.PartialObjectMetadata)
	if before != nil && after != nil && before.UID != after.UID {
		r.enqueueAccount(after)
	}
}

func (r *References) namesNamespace(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.namespaces[name]
}
