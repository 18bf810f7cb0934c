package constraint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// staleRetry is when a status is written again after the constraint changed meanwhile. probeInterval is the time
// between two checks whether the API server uses new webhooks, and unknownRetry that after one that failed.
const (
	staleRetry    = 20 * time.Millisecond
	probeInterval = 50 * time.Millisecond
	unknownRetry  = 10 * time.Second
)

// Statuses is the controller that writes the status of SecurityContextConstraints: whether the operator admits pods by
// them. It is a controller of the leader.
type Statuses struct {
	*leadership.Leader
	// Stored has the ValidatingWebhookConfiguration of constraints.
	Stored *webhook.Stored
	// Blocks knows whether namespaces are given no user IDs.
	Blocks *Blocks
	// Constraints are those by which pods are judged.
	Constraints *constraintCache

	written freshness.Store[string, *v1alpha1.SecurityContextConstraints]
}

// SetupWithManager adds a controller that reconciles a constraint when it changes, and all constraints when a webhook
// configuration changes.
func (r *Statuses) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("sccstatus").
		For(&v1alpha1.SecurityContextConstraints{},
			builder.WithPredicates(watch.MoreThanOwnStatus(&r.written))).
		Watches(&admissionregistrationv1.MutatingWebhookConfiguration{}, handler.EnqueueRequestsFromMapFunc(
			func(ctx context.Context, _ client.Object) []reconcile.Request { return r.all(ctx) })).
		WatchesRawSource(r.Stored.Source(v1alpha1.ConstraintWebhookName, r.all)).
		WatchesRawSource(source.Func(func(ctx context.Context, queue backoff.Queue) error {
			r.Blocks.exhaustion.Listen(func() {
				for _, request := range r.all(ctx) {
					queue.Add(request)
				}
			})
			return nil
		})).
		WithOptions(controller.Options{NewQueue: r.Queues.New}).
		Complete(r.Caches.Before(r))
}

func (r *Statuses) all(ctx context.Context) []reconcile.Request {
	list := &v1alpha1.SecurityContextConstraintsList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "can't list the constraints that a webhook configuration concerns")
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return requests
}

// Reconcile writes the status of a constraint if it changes.
func (r *Statuses) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	constraint, err := r.written.Read(request.Name, func() (*v1alpha1.SecurityContextConstraints, error) {
		cached := &v1alpha1.SecurityContextConstraints{}
		return cached, r.Client.Get(ctx, request.NamespacedName, cached)
	})
	if err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	state, err := r.configured(ctx)
	if err != nil || state == webhook.Missing && len(constraint.Status.Conditions) == 0 {
		return reconcile.Result{}, err // the operator is about to write them, and the watch reports that
	}
	changed := constraint.DeepCopy()
	changed.Status.ObservedGeneration = constraint.Generation
	isExhausted, isKnown := r.Blocks.isExhausted()
	is, reason, message := readiness(constraint, state, isExhausted)
	if !isKnown && is == reporting.Current && scc.NeedsAllocation(scc.Defaulted(constraint)) {
		return reconcile.Result{}, nil // all constraints are reconciled again once it is known
	}
	reporting.SetKstatus(&changed.Status.Conditions, constraint.Generation, is, reason, message)
	if equality.Semantic.DeepEqual(&constraint.Status, &changed.Status) {
		return reconcile.Result{}, nil
	}
	var next time.Duration
	if state == webhook.Configured {
		isUsed, err := r.isUsed(ctx, constraint)
		if err == nil && !isUsed {
			return reconcile.Result{RequeueAfter: probeInterval}, nil
		}
		if err != nil && is == reporting.Current {
			next = unknownRetry
			changed.Status.Conditions = slices.Clone(constraint.Status.Conditions)
			reporting.SetKstatus(&changed.Status.Conditions, constraint.Generation, reporting.InProgress, "NotReached",
				"it is unknown whether the API server sends pods by this generation to the operator: "+err.Error())
		}
	}
	if equality.Semantic.DeepEqual(&constraint.Status, &changed.Status) {
		return reconcile.Result{RequeueAfter: next}, nil
	}
	err = r.Client.Status().Patch(ctx, changed, patch.WhileUnchanged(constraint))
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: staleRetry}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{},
			fmt.Errorf("write the status of SecurityContextConstraints %s: %w", constraint.Name, err)
	case err == nil:
		r.written.Written(changed.Name, changed)
	}
	return reconcile.Result{RequeueAfter: next}, nil
}

// configured returns whether both webhook configurations contain the webhooks that admit pods.
func (r *Statuses) configured(ctx context.Context) (webhook.State, error) {
	mutator, err := r.mutator(ctx)
	if apierrors.IsNotFound(err) {
		return webhook.Deleted, nil
	}
	state, errStored := r.Stored.State(ctx, v1alpha1.ConstraintWebhookName, pluginName)
	if state == webhook.Configured && mutator == nil {
		state = webhook.Missing
	}
	return state, errors.Join(err, errStored)
}

// mutator returns the webhook of Mutate as it is stored, or nil if the configuration lacks it.
func (r *Statuses) mutator(ctx context.Context) (*admissionregistrationv1.MutatingWebhook, error) {
	stored := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.WebhookName}, stored); err != nil {
		return nil, fmt.Errorf("read MutatingWebhookConfiguration %s: %w", v1alpha1.WebhookName, err)
	}
	i := slices.IndexFunc(stored.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool {
		return w.Name == webhook.FullName(pluginName)
	})
	if i < 0 {
		return nil, nil
	}
	return &stored.Webhooks[i], nil
}

// isUsed reports whether no replica judges pods by an earlier generation of a constraint any more: the webhooks have
// the revision of constraints that contain it, and the API server uses the validating one. Other constraints may have
// changed since.
func (r *Statuses) isUsed(ctx context.Context, constraint *v1alpha1.SecurityContextConstraints) (bool, error) {
	mutator, err := r.mutator(ctx)
	if err != nil || mutator == nil || !r.Constraints.isWrittenFor(mutator.ClientConfig, constraint) {
		return false, client.IgnoreNotFound(err)
	}
	state, err := r.Stored.Asks(ctx, v1alpha1.ConstraintWebhookName, pluginName,
		func(w *admissionregistrationv1.ValidatingWebhook) bool {
			return r.Constraints.isWrittenFor(w.ClientConfig, constraint)
		})
	return state == webhook.Configured, err
}

// readiness returns whether the operator admits pods by a constraint. isExhausted says that namespaces are given no
// user IDs.
func readiness(
	constraint *v1alpha1.SecurityContextConstraints, state webhook.State, isExhausted bool,
) (is reporting.Kstatus, reason, message string) {
	if err := scc.Check(scc.Defaulted(constraint)); err != nil {
		return reporting.Failed, "Invalid", "no pod is admitted by the constraint: " + err.Error()
	}
	switch state {
	case webhook.Deleted:
		return reporting.Failed, "NotReached", "MutatingWebhookConfiguration " + v1alpha1.WebhookName +
			" or ValidatingWebhookConfiguration " + v1alpha1.ConstraintWebhookName +
			" does not exist. Without the first, no fields of pods are set; without the second, exec, attach and what other " +
			"webhooks set in pods are not checked: apply the manifests again"
	case webhook.Missing:
		return reporting.InProgress, "NotReached", "the API server does not send pods to the operator yet"
	case webhook.Configured:
	}
	if isExhausted && scc.NeedsAllocation(scc.Defaulted(constraint)) {
		return reporting.Failed, scc.ReasonPoolExhausted, "pods in namespaces without user IDs are denied: " +
			scc.ErrPoolExhausted.Error()
	}
	return reporting.Current, "InForce", "the operator admits pods by the constraint"
}
