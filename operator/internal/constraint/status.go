package constraint

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
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

const (
	// staleRetry is when a status is written again after the constraint changed meanwhile.
	staleRetry = 20 * time.Millisecond
	// firstPoll is the delay before a constraint is reconciled again because it is unknown whether it is in force. Each
	// further delay is twice as long, up to lastPoll.
	firstPoll = 50 * time.Millisecond
	lastPoll  = 10 * time.Second
)

// storedWebhooks is what Statuses uses of webhook.Stored.
type storedWebhooks interface {
	State(ctx context.Context, configuration, plugin string) (webhook.State, error)
	Asks(
		ctx context.Context, configuration, plugin string,
		isAsNeeded func(*admissionregistrationv1.ValidatingWebhook) bool,
	) (webhook.State, error)
	MutatingFailure() error
	Source(configuration string, requests func(context.Context) []reconcile.Request) source.Source
}

// Statuses is the controller that writes the status of SecurityContextConstraints: whether the operator admits pods by
// them. It is a controller of the leader.
type Statuses struct {
	*leadership.Leader
	// Stored has the ValidatingWebhookConfiguration of constraints.
	Stored storedWebhooks
	// Blocks knows whether namespaces are given no user IDs.
	Blocks *Blocks
	// Constraints are those by which pods are judged.
	Constraints *constraintCache

	written freshness.Store[string, *v1alpha1.SecurityContextConstraints]
	// polls decides when a constraint is reconciled again while it is unknown whether it is in force.
	polls workqueue.TypedRateLimiter[string]
}

// SetupWithManager adds a controller that reconciles a constraint when it changes, and all constraints when a webhook
// configuration changes.
func (r *Statuses) SetupWithManager(mgr ctrl.Manager) error {
	r.polls = newPolls()
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

func newPolls() workqueue.TypedRateLimiter[string] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstPoll, lastPoll)
}

// all returns a request for each constraint. Those of which something is unknown are reconciled often again.
func (r *Statuses) all(ctx context.Context) []reconcile.Request {
	list := &v1alpha1.SecurityContextConstraintsList{}
	if err := r.Client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "can't list the constraints that a webhook configuration concerns")
	}
	requests := make([]reconcile.Request, 0, len(list.Items))
	for i := range list.Items {
		r.polls.Forget(list.Items[i].Name)
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
		if apierrors.IsNotFound(err) {
			r.polls.Forget(request.Name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	changed, isAwaited := r.nextStatus(ctx, constraint)
	var next time.Duration
	if isAwaited {
		next = r.polls.When(constraint.Name)
	} else {
		r.polls.Forget(constraint.Name)
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

// nextStatus returns a constraint with its next status, and whether it is reconciled again because more may be known
// then. The constraint keeps its status while the operator is about to write the webhooks, and the API server is about
// to use them.
func (r *Statuses) nextStatus(
	ctx context.Context, constraint *v1alpha1.SecurityContextConstraints,
) (next *v1alpha1.SecurityContextConstraints, isAwaited bool) {
	state, failure := r.configured(ctx)
	if state == webhook.Missing && failure == nil && len(constraint.Status.Conditions) == 0 {
		return constraint, true
	}
	isExhausted, isKnown := r.Blocks.isExhausted()
	is, reason, message := readiness(constraint, state, isExhausted)
	if !isKnown && is == reporting.Current && scc.NeedsAllocation(scc.Defaulted(constraint)) {
		return constraint, false // all constraints are reconciled again once it is known
	}
	next = withStatus(constraint, is, reason, message)
	if state == webhook.Configured && !equality.Semantic.DeepEqual(&constraint.Status, &next.Status) {
		isUsed, err := r.isUsed(ctx, constraint)
		if err == nil && !isUsed {
			return constraint, true
		}
		failure = err
	}
	if failure != nil && is != reporting.Failed {
		next = withStatus(constraint, reporting.InProgress, "NotReached",
			"the API server perhaps does not send pods by this generation to the operator: "+failure.Error())
	}
	return next, failure != nil || state == webhook.Missing
}

// withStatus returns a copy of a constraint with the conditions for its generation.
func withStatus(
	constraint *v1alpha1.SecurityContextConstraints, is reporting.Kstatus, reason, message string,
) *v1alpha1.SecurityContextConstraints {
	changed := constraint.DeepCopy()
	changed.Status.ObservedGeneration = constraint.Generation
	reporting.SetKstatus(&changed.Status.Conditions, constraint.Generation, is, reason, message)
	return changed
}

// configured returns whether both webhook configurations contain the webhooks that admit pods. The error is why that is
// unknown, or why the operator could not write the webhooks.
func (r *Statuses) configured(ctx context.Context) (webhook.State, error) {
	mutator, err := r.mutator(ctx)
	if apierrors.IsNotFound(err) {
		return webhook.Deleted, nil
	}
	if err == nil && mutator == nil {
		err = r.Stored.MutatingFailure()
	}
	state, errStored := r.Stored.State(ctx, v1alpha1.ConstraintWebhookName, pluginName)
	if state == webhook.Configured && mutator == nil {
		state = webhook.Missing
	}
	return state, cmp.Or(err, errStored)
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
// changed since. The error is why that is unknown, or why the operator could not write the webhooks.
func (r *Statuses) isUsed(ctx context.Context, constraint *v1alpha1.SecurityContextConstraints) (bool, error) {
	mutator, err := r.mutator(ctx)
	if err != nil {
		return false, client.IgnoreNotFound(err)
	}
	if mutator == nil || !r.Constraints.isWrittenFor(mutator.ClientConfig, constraint) {
		return false, r.Stored.MutatingFailure()
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
