package attribute

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// Reasons of the Enforced condition.
const (
	reasonEnforced   = "Enforced"
	reasonNotReached = "NotReached"
)

// probeInterval is the time between two probes while the API server does not use a new configuration yet.
const probeInterval = 20 * time.Millisecond

// probeTolerance is how long probes may fail before the conditions report it. A replica that has just started serves
// its certificate within that time.
const probeTolerance = time.Second

// Enforcement writes the Enforced condition of all rules: whether the API server sends the requests that change the
// attributes. It is a controller of the leader.
type Enforcement struct {
	Client client.Client
	// Rules are the rules that Admission enforces.
	Rules *RuleCache
	// Queues creates the queue of the controller.
	Queues *backoff.Queues

	// enforced is the revision of the last probe that succeeded, or empty.
	enforced string
	// failingSince is the time of the first of the probes that have failed since one succeeded.
	failingSince time.Time
}

// SetupWithManager adds a controller that reconciles all rules together when one of them changes, and when the webhook
// configuration changes.
func (r *Enforcement) SetupWithManager(mgr ctrl.Manager) error {
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("protectedattribute").
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, enqueue).
		WatchesRawSource(source.Func(func(_ context.Context, queue backoff.Queue) error {
			r.Rules.changes.Listen(func() { queue.Add(reconcile.Request{}) })
			return nil
		})).
		WithOptions(controller.Options{NewQueue: r.Queues.New}).
		Complete(r)
}

// Reconcile updates the conditions.
func (r *Enforcement) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	failingSince := r.failingSince
	r.failingSince = time.Time{}
	rules, err := r.Rules.Cached(ctx)
	if err != nil || rules.Empty() {
		return reconcile.Result{}, err
	}
	revision := rules.Revision()
	state, err := r.configured(ctx, Marker(revision))
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case state == configurationDeleted || state == webhookMissing && r.enforced == revision:
		r.enforced = ""
		return reconcile.Result{}, r.report(ctx, rules, state.kstatus(), string(state))
	case state == webhookMissing:
		return reconcile.Result{}, nil // the operator is about to write it, and the watch reports that
	case r.enforced != revision:
		asked, err := r.probe(ctx, revision)
		if err != nil {
			return reconcile.Result{}, r.probeFailed(ctx, rules, failingSince, err)
		}
		if !asked {
			return reconcile.Result{RequeueAfter: probeInterval}, nil
		}
		r.enforced = revision
	}
	return reconcile.Result{},
		r.report(ctx, rules, reporting.Current, "the API server enforces the rule")
}

// probeFailed returns the error of a probe, so that it is repeated. Once probes have failed for probeTolerance, the
// conditions report the error.
func (r *Enforcement) probeFailed(
	ctx context.Context, rules *attributes.Rules, failingSince time.Time, failure error,
) error {
	if failingSince.IsZero() {
		failingSince = time.Now()
	}
	r.failingSince = failingSince
	if time.Since(failingSince) < probeTolerance {
		return failure
	}
	return errors.Join(failure, r.report(ctx, rules, reporting.InProgress, reporting.Shorten(failure.Error())))
}

// configuration is the state of the webhook configuration. Where it is not empty, it is a message for users.
type configuration string

const (
	webhookConfigured    configuration = ""
	configurationDeleted configuration = "ValidatingWebhookConfiguration " + v1alpha1.WebhookName +
		" does not exist, so the API server enforces no rule: apply the manifests again"
	webhookMissing configuration = "ValidatingWebhookConfiguration " + v1alpha1.WebhookName +
		" lacks the webhook of the rules: wait until the operator has written it again"
)

// kstatus returns the status of the rules while the webhook configuration is in a state. The operator adds its webhook
// to the configuration, but does not create the configuration.
func (c configuration) kstatus() reporting.Kstatus {
	switch c {
	case webhookConfigured:
		return reporting.Current
	case configurationDeleted:
		return reporting.Failed
	case webhookMissing:
	}
	return reporting.InProgress
}

// configured returns whether the webhook configuration contains the webhook with a marker.
func (r *Enforcement) configured(ctx context.Context, marker string) (configuration, error) {
	stored := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err := r.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.WebhookName}, stored)
	if apierrors.IsNotFound(err) {
		return configurationDeleted, nil
	}
	if err != nil {
		return "", err
	}
	for _, webhook := range stored.Webhooks {
		for _, condition := range webhook.MatchConditions {
			if strings.Contains(condition.Expression, marker) {
				return webhookConfigured, nil
			}
		}
	}
	return webhookMissing, nil
}

// probe reports whether the API server enforces the rules of a revision. It tries to set the marker, which Admission
// denies, in a dry run.
func (r *Enforcement) probe(ctx context.Context, revision string) (bool, error) {
	marker := Marker(revision)
	own := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.OperatorNamespace}}
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: "asked"}}}`, marker)
	err := r.Client.Status().Patch(ctx, own, client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	switch {
	case err == nil:
		return false, nil
	case apierrors.IsForbidden(err) && strings.Contains(err.Error(), marker):
		return true, nil
	}
	return false, fmt.Errorf("probe whether the API server enforces protected attributes: %w", err)
}

// report writes the conditions of all rules. If the rules have changed meanwhile, it writes nothing: the change has
// enqueued them again.
func (r *Enforcement) report(
	ctx context.Context, rules *attributes.Rules, is reporting.Kstatus, message string,
) error {
	cluster, namespaced := &v1alpha1.ClusterProtectedAttributeList{}, &v1alpha1.ProtectedAttributeList{}
	if err := errors.Join(r.Client.List(ctx, cluster), r.Client.List(ctx, namespaced)); err != nil {
		return err
	}
	if attributes.NewRules(cluster.Items, namespaced.Items).Revision() != rules.Revision() {
		return nil
	}
	var errs []error
	for i := range cluster.Items {
		before := cluster.Items[i].DeepCopy()
		errs = append(errs, r.write(ctx, &cluster.Items[i], before, &cluster.Items[i].Status, is, message))
	}
	for i := range namespaced.Items {
		before := namespaced.Items[i].DeepCopy()
		errs = append(errs, r.write(ctx, &namespaced.Items[i], before, &namespaced.Items[i].Status, is, message))
	}
	return errors.Join(errs...)
}

// write writes the status of an object if the conditions change it.
func (r *Enforcement) write(
	ctx context.Context, object, before client.Object, status *v1alpha1.ProtectedAttributeStatus,
	is reporting.Kstatus, message string,
) error {
	stored := status.DeepCopy()
	enforced := metav1.Condition{
		Type: v1alpha1.AttributeEnforced, ObservedGeneration: object.GetGeneration(), Status: metav1.ConditionTrue,
		Reason: reasonEnforced, Message: message,
	}
	if is != reporting.Current {
		enforced.Status, enforced.Reason = metav1.ConditionFalse, reasonNotReached
	}
	status.ObservedGeneration = object.GetGeneration()
	apimeta.SetStatusCondition(&status.Conditions, enforced)
	reporting.SetKstatus(&status.Conditions, object.GetGeneration(), is, enforced.Reason, message)
	if equality.Semantic.DeepEqual(stored, status) {
		return nil
	}
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, object, patch.WhileUnchanged(before))); err != nil {
		return fmt.Errorf("write the status of %T %s: %w", before, client.ObjectKeyFromObject(before), err)
	}
	return nil
}
