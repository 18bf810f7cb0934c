package population

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/queue"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/watch"
)

// Initializers writes the status of NamespaceInitializationConfigurations, and queues the namespaces that wait for
// initializers.
type Initializers struct {
	*leadership.Leader
	Queue *queue.Queue
}

// SetupWithManager adds the controller to a manager.
func (r *Initializers) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("namespaceinitializationconfiguration").
		For(&v1alpha1.NamespaceInitializationConfiguration{},
			builder.WithPredicates(predicate.Funcs{UpdateFunc: watch.MoreThanStatus})).
		WithOptions(controller.Options{NewQueue: r.Queues.New}).
		Complete(r)
}

// Reconcile writes whether a configuration is accepted. Any namespace that is initializing may wait for an initializer
// of this configuration, or of its earlier version, so all of them are queued.
func (r *Initializers) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	initializing := &corev1.NamespaceList{}
	if err := r.Client.List(ctx, initializing, client.HasLabels{v1alpha1.InitializingLabel},
		client.UnsafeDisableDeepCopy); err != nil {
		return reconcile.Result{}, err
	}
	for i := range initializing.Items {
		r.Queue.Enqueue(queue.Changed, 0, initializing.Items[i].Name)
	}
	configuration := &v1alpha1.NamespaceInitializationConfiguration{}
	if err := r.Client.Get(ctx, req.NamespacedName, configuration); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	return reconcile.Result{}, r.keepStatus(ctx, configuration)
}

func (r *Initializers) keepStatus(
	ctx context.Context, configuration *v1alpha1.NamespaceInitializationConfiguration,
) error {
	is, accepted := reporting.Current, metav1.Condition{
		Type: v1alpha1.InitializationAccepted, ObservedGeneration: configuration.Generation,
		Status: metav1.ConditionTrue, Reason: reasonAccepted, Message: "the selectors can be read",
	}
	if err := initialize.Check(configuration); err != nil {
		is, accepted.Status, accepted.Reason = reporting.Failed, metav1.ConditionFalse, reasonInvalid
		accepted.Message = reporting.Shorten(err.Error())
	}
	changed := configuration.DeepCopy()
	changed.Status.ObservedGeneration = configuration.Generation
	apimeta.SetStatusCondition(&changed.Status.Conditions, accepted)
	reporting.SetKstatus(&changed.Status.Conditions, configuration.Generation, is, accepted.Reason, accepted.Message)
	if equality.Semantic.DeepEqual(&configuration.Status, &changed.Status) {
		return nil
	}
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, changed,
		patch.WhileUnchanged(configuration))); err != nil {
		return fmt.Errorf("write the status of configuration %s: %w", configuration.Name, err)
	}
	return nil
}
