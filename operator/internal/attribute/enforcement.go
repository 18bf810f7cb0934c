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

// probeAgain is how soon the API server is asked again whether it goes by a configuration that it has just got.
const probeAgain = 20 * time.Millisecond

// probePatience is how long probes may fail before the conditions say so: a replica that has just started has yet to
// read its certificate.
const probePatience = time.Second

// Enforcement says of the rules on attributes whether they are enforced: whether the API server asks about them, which
// it is seen to do.
type Enforcement struct {
	Client client.Client
	// Admission has the rules that are to be enforced.
	Admission *Admission
	// Queues makes the controller's queue.
	Queues *backoff.Queues

	// seen is the revision that the API server was last seen to ask about.
	seen string
	// failing is when probes began to fail.
	failing time.Time
}

// SetupWithManager has all rules looked at together as one of them changes, and what the API server is told.
func (r *Enforcement) SetupWithManager(mgr ctrl.Manager) error {
	enqueue := handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request {
		return []reconcile.Request{{}}
	})
	return ctrl.NewControllerManagedBy(mgr).Named("protectedattribute").
		Watches(&admissionregistrationv1.ValidatingWebhookConfiguration{}, enqueue).
		WatchesRawSource(source.Func(func(_ context.Context, queue backoff.Queue) error {
			r.Admission.changes.Listen(func() { queue.Add(reconcile.Request{}) })
			return nil
		})).
		WithOptions(controller.Options{NewQueue: r.Queues.New}).
		Complete(r)
}

// Reconcile brings the conditions up to date.
func (r *Enforcement) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	failing := r.failing
	r.failing = time.Time{}
	rules, err := r.Admission.Current(ctx)
	if err != nil || rules.Empty() {
		return reconcile.Result{}, err
	}
	revision := rules.Revision()
	missing, gone, err := r.missing(ctx, Marker(revision))
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case gone || missing != "" && r.seen == revision: // it was there
		r.seen = ""
		return reconcile.Result{}, r.say(ctx, rules, metav1.ConditionFalse, reasonNotReached, missing)
	case missing != "":
		return reconcile.Result{}, nil // it is yet to come, and the watch will tell
	}
	if r.seen != revision {
		asked, err := r.probe(ctx, revision)
		if err != nil && failing.IsZero() {
			failing = time.Now()
		}
		switch {
		case err != nil && time.Since(failing) < probePatience:
			r.failing = failing
			return reconcile.Result{}, err
		case err != nil:
			r.failing = failing
			return reconcile.Result{},
				errors.Join(err,
					r.say(ctx, rules, metav1.ConditionFalse, reasonNotReached, reporting.Shorten(err.Error())))
		case !asked:
			return reconcile.Result{RequeueAfter: probeAgain}, nil
		}
		r.seen = revision
	}
	return reconcile.Result{},
		r.say(ctx, rules, metav1.ConditionTrue, reasonEnforced, "the API server asks about the attribute")
}

// missing says what is not there of what the API server asks by, and whether all of it is gone.
func (r *Enforcement) missing(ctx context.Context, marker string) (text string, gone bool, err error) {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	err = r.Client.Get(ctx, client.ObjectKey{Name: v1alpha1.WebhookName}, configuration)
	switch {
	case apierrors.IsNotFound(err):
		return "ValidatingWebhookConfiguration " + v1alpha1.WebhookName +
			" is gone, so that the API server asks nobody: apply the manifests again", true, nil
	case err != nil:
		return "", false, err
	}
	for _, webhook := range configuration.Webhooks {
		for _, condition := range webhook.MatchConditions {
			if strings.Contains(condition.Expression, marker) {
				return "", false, nil
			}
		}
	}
	return "ValidatingWebhookConfiguration " + v1alpha1.WebhookName +
		" lacks the webhook: the operator is about to write it again", false, nil
}

// probe tells whether the API server asks about the rules of a revision. Nothing is stored.
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
	return false, fmt.Errorf("see whether the API server asks about protected attributes: %w", err)
}

// say writes what differs from the conditions. Rules that changed meanwhile have their turn later.
func (r *Enforcement) say(
	ctx context.Context, rules *attributes.Rules, status metav1.ConditionStatus, reason, message string,
) error {
	condition := metav1.Condition{Type: v1alpha1.AttributeEnforced, Status: status, Reason: reason, Message: message}
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
		errs = append(errs, r.write(ctx, &cluster.Items[i], before, &cluster.Items[i].Status, condition))
	}
	for i := range namespaced.Items {
		before := namespaced.Items[i].DeepCopy()
		errs = append(errs, r.write(ctx, &namespaced.Items[i], before, &namespaced.Items[i].Status, condition))
	}
	return errors.Join(errs...)
}

func (r *Enforcement) write(
	ctx context.Context, object, before client.Object, status *v1alpha1.ProtectedAttributeStatus,
	condition metav1.Condition,
) error {
	known := status.DeepCopy()
	condition.ObservedGeneration = object.GetGeneration()
	status.ObservedGeneration = object.GetGeneration()
	apimeta.SetStatusCondition(&status.Conditions, condition)
	if equality.Semantic.DeepEqual(known, status) {
		return nil
	}
	if err := client.IgnoreNotFound(r.Client.Status().Patch(ctx, object, patch.WhileUnchanged(before))); err != nil {
		return fmt.Errorf("write the status of %T %s: %w", before, client.ObjectKeyFromObject(before), err)
	}
	return nil
}
