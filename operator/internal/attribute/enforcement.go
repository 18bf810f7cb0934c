package attribute

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// Reasons of the Enforced condition.
const (
	reasonEnforced   = "Enforced"
	reasonNotReached = "NotReached"
)

// probeInterval is the time between two probes while the API server does not use a new configuration yet.
const probeInterval = 20 * time.Millisecond

// rulesInterval is when the rules are asked for again that the webhooks were written for.
const rulesInterval = time.Second

// gatherInterval is how long Enforcement gathers changes of rules. The webhooks of a new rule are written at once,
// which the watch of the webhook configuration reports.
const gatherInterval = 200 * time.Millisecond

// statusWriters is the number of statuses that are written at the same time.
const statusWriters = 8

// probeTolerance is how long probes may fail before the conditions of all rules report it. A new leader that follows a
// dead one is reached within that time, and meanwhile the API server lets no request pass.
const probeTolerance = 10 * time.Second

// Enforcement writes the Enforced condition of all rules: whether the API server sends the requests that change the
// attributes. It is a controller of the leader.
type Enforcement struct {
	*leadership.Leader
	// Stored has the webhook configuration.
	Stored *webhook.Stored
	// Rules are the rules that Admission enforces.
	Rules *RuleCache

	// enforced is the revision of the last probe that succeeded, or empty.
	enforced string
	// failingSince is the time of the first of the probes that have failed since one succeeded.
	failingSince time.Time
}

// SetupWithManager adds a controller that reconciles all rules together when some of them change, and when the webhook
// configuration changes.
func (r *Enforcement) SetupWithManager(mgr ctrl.Manager) error {
	all := func(context.Context) []reconcile.Request { return []reconcile.Request{{}} }
	return ctrl.NewControllerManagedBy(mgr).Named("protectedattribute").
		WatchesRawSource(r.Stored.Source(v1alpha1.AttributeWebhookName, all)).
		WatchesRawSource(source.Func(func(_ context.Context, queue backoff.Queue) error {
			r.Rules.Changes.Listen(func() { queue.AddAfter(reconcile.Request{}, gatherInterval) })
			return nil
		})).
		WithOptions(controller.Options{NewQueue: r.Queues.New}).
		Complete(r.Caches.Before(r))
}

// Reconcile updates the conditions.
func (r *Enforcement) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	failingSince := r.failingSince
	r.failingSince = time.Time{}
	state, rules, err := r.configured(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	if state != webhookConfigured {
		return reconcile.Result{}, r.notConfigured(ctx, state)
	}
	if rules == nil {
		// The rules are being read. The watch reports if the operator then writes the webhooks, but not if they are
		// already as they should be.
		return reconcile.Result{RequeueAfter: rulesInterval}, nil
	}
	if revision := rules.Revision(); r.enforced != revision {
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

// notConfigured reports that the webhook configuration does not exist, or no longer has the webhooks of rules that have
// not changed. Otherwise the operator is about to write the webhooks, and the watch reports that.
func (r *Enforcement) notConfigured(ctx context.Context, state configuration) error {
	rules, err := r.Rules.Cached(ctx)
	if err != nil || rules.Empty() || state == webhookMissing && r.enforced != rules.Revision() {
		return err
	}
	r.enforced = ""
	return r.report(ctx, rules, state.kstatus(), string(state))
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
	configurationDeleted configuration = "ValidatingWebhookConfiguration " + v1alpha1.AttributeWebhookName +
		" does not exist, so the API server enforces no rule: apply the manifests again"
	webhookMissing configuration = "ValidatingWebhookConfiguration " + v1alpha1.AttributeWebhookName +
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

// configured returns the state of the webhook configuration, and the rules from which its webhooks were generated; nil
// if they are those of an earlier leader.
func (r *Enforcement) configured(ctx context.Context) (configuration, *attributes.Rules, error) {
	stored, err := r.Stored.Get(ctx, v1alpha1.AttributeWebhookName)
	if apierrors.IsNotFound(err) {
		return configurationDeleted, nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	if len(stored.Webhooks) == 0 {
		return webhookMissing, nil, nil
	}
	rules, _ := r.Rules.OfWebhooks(func(revision string) bool {
		return slices.ContainsFunc(stored.Webhooks, func(webhook admissionregistrationv1.ValidatingWebhook) bool {
			return slices.ContainsFunc(webhook.MatchConditions, func(c admissionregistrationv1.MatchCondition) bool {
				return strings.Contains(c.Expression, Marker(revision))
			})
		})
	})
	return webhookConfigured, rules, nil
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

// report writes the conditions of the objects with some rules. It leaves out those that have changed meanwhile: their
// webhooks will be written, and then enqueue them again.
func (r *Enforcement) report(
	ctx context.Context, rules *attributes.Rules, is reporting.Kstatus, message string,
) error {
	objects, err := r.Rules.objects(ctx)
	if err != nil {
		return err
	}
	changed := slices.DeleteFunc(objects, func(object client.Object) bool {
		return !rules.Contain(object) ||
			equality.Semantic.DeepEqual(statusOf(object), newStatus(object, is, message))
	})
	errs := make([]error, len(changed))
	workqueue.ParallelizeUntil(ctx, statusWriters, len(changed), func(i int) {
		errs[i] = r.write(ctx, changed[i], newStatus(changed[i], is, message))
	})
	return errors.Join(errs...)
}

// statusOf returns the status of an object with a rule.
func statusOf(object client.Object) *v1alpha1.ProtectedAttributeStatus {
	if rule, ok := object.(*v1alpha1.ClusterProtectedAttribute); ok {
		return &rule.Status
	}
	return &object.(*v1alpha1.ProtectedAttribute).Status
}

// newStatus returns the status that an object gets. It does not change the object.
func newStatus(object client.Object, is reporting.Kstatus, message string) *v1alpha1.ProtectedAttributeStatus {
	status := statusOf(object).DeepCopy()
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
	return status
}

func (r *Enforcement) write(
	ctx context.Context, object client.Object, status *v1alpha1.ProtectedAttributeStatus,
) error {
	changed := object.DeepCopyObject().(client.Object)
	*statusOf(changed) = *status
	err := r.Client.Status().Patch(ctx, changed, patch.WhileUnchanged(object))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write the status of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	if err == nil {
		r.Rules.written.Written(changed.GetUID(), changed)
	}
	return nil
}
