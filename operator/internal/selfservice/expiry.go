package selfservice

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/internal/policyspace"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/selfservice"
)

// retryStale is when a namespace that changed before it could be written is reconciled again.
const retryStale = 250 * time.Millisecond

// retryRefused is when the operator tries again to give a namespace an end, or to delete it, after the API server
// refused it.
const retryRefused = 5 * time.Minute

// Expiry is the controller that gives namespaces an end, announces it, and deletes those whose users have consented.
type Expiry struct {
	*leadership.Leader
	// Rules returns the rules on protected attributes. The operator itself is exempt from them.
	Rules func(context.Context) (*attributes.Rules, error)
	// Exempt lists the namespaces that never expire.
	Exempt []string
}

// SetupWithManager adds a controller that reconciles a namespace when its annotations or its policy space change, and
// all namespaces in policy spaces when rules change.
func (r *Expiry) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).Named("expiry").
		Watches(&corev1.Namespace{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.Funcs{
			CreateFunc: func(e event.CreateEvent) bool { return mayExpire(e.Object) },
			UpdateFunc: func(e event.UpdateEvent) bool {
				return inputsOf(e.ObjectOld) != inputsOf(e.ObjectNew) &&
					(mayExpire(e.ObjectOld) || mayExpire(e.ObjectNew))
			},
			DeleteFunc: func(e event.DeleteEvent) bool { return mayExpire(e.Object) },
		})).
		Watches(&v1alpha1.PolicySpace{}, handler.EnqueueRequestsFromMapFunc(r.namespacesInSpaces),
			builder.WithPredicates(changesLives)).
		WithOptions(controller.Options{NewQueue: r.Queues.New}).
		Complete(r.Caches.Before(r))
}

// changesLives selects the changes of policy spaces that may limit the lives of namespaces. At the start, all of these
// are reconciled anyway. Later, a new policy space without a maxAge may be what was missing between a namespace and an
// ancestor with one.
var changesLives = predicate.Funcs{
	CreateFunc: func(e event.CreateEvent) bool {
		return !e.IsInInitialList && (maxAgeOf(e.Object) > 0 || parentOf(e.Object) != "")
	},
	UpdateFunc: func(e event.UpdateEvent) bool {
		return maxAgeOf(e.ObjectOld) != maxAgeOf(e.ObjectNew) || parentOf(e.ObjectOld) != parentOf(e.ObjectNew)
	},
	DeleteFunc: func(event.DeleteEvent) bool { return false },
}

// mayExpire reports whether a namespace has an end, or may be given one.
func mayExpire(ns client.Object) bool {
	return ns.GetLabels()[v1alpha1.PolicySpaceLabel] != "" || ns.GetAnnotations()[v1alpha1.ExpiresAnnotation] != ""
}

// inputs are what the controller needs of a namespace. It may be deleted and created again while the watch is
// interrupted.
type inputs struct {
	uid                                 types.UID
	expires, consent, protection, space string
	isDeleted                           bool
}

func inputsOf(ns client.Object) inputs {
	annotations, labels := ns.GetAnnotations(), ns.GetLabels()
	return inputs{
		uid: ns.GetUID(), expires: annotations[v1alpha1.ExpiresAnnotation],
		consent:    annotations[v1alpha1.DeleteWhenExpiredAnnotation],
		protection: annotations[v1alpha1.DeletionProtectionAnnotation],
		space:      labels[v1alpha1.PolicySpaceLabel], isDeleted: ns.GetDeletionTimestamp() != nil,
	}
}

func maxAgeOf(object client.Object) time.Duration {
	space, ok := object.(*v1alpha1.PolicySpace)
	if !ok {
		return 0
	}
	return selfservice.MaxAge([]*v1alpha1.PolicySpace{space})
}

func parentOf(object client.Object) string {
	if space, ok := object.(*v1alpha1.PolicySpace); ok {
		return space.Spec.Parent
	}
	return ""
}

// namespacesInSpaces returns requests for all namespaces that are in policy spaces and have no end yet, if the changed
// policy space or one of its ancestors has a maxAge. An ancestor that is not cached yet has an event of its own.
func (r *Expiry) namespacesInSpaces(ctx context.Context, changed client.Object) []reconcile.Request {
	if maxAgeOf(changed) == 0 {
		ancestors, err := policyspace.Lineage(ctx, r.Client, parentOf(changed))
		if err == nil && selfservice.MaxAge(ancestors) == 0 {
			return nil
		}
	}
	list := &corev1.NamespaceList{}
	inSpaces := client.HasLabels{v1alpha1.PolicySpaceLabel}
	if err := r.Client.List(ctx, list, inSpaces, client.UnsafeDisableDeepCopy); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot list the namespaces in policyspaces")
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		if list.Items[i].Annotations[v1alpha1.ExpiresAnnotation] == "" {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKey{Name: list.Items[i].Name}})
		}
	}
	return requests
}

// Reconcile gives a namespace an end, or does what is due at this time before and after its end.
func (r *Expiry) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	ns := &corev1.Namespace{}
	err := r.Client.Get(ctx, request.NamespacedName, ns)
	isExempt := slices.Contains(r.Exempt, request.Name) || match.IsSystemNamespace(request.Name)
	if err != nil || isExempt || ns.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	now := time.Now()
	annotation := ns.Annotations[v1alpha1.ExpiresAnnotation]
	if annotation == "" {
		return r.begin(ctx, ns, now)
	}
	life := selfservice.LifeOf(annotation, ns.CreationTimestamp.Time, now)
	consents := ns.Annotations[v1alpha1.DeleteWhenExpiredAnnotation] == "true"
	message := life.Message(annotation, consents)
	if life.State == selfservice.Expired {
		isDeleted, why, err := r.delete(ctx, ns, consents)
		if err != nil || isDeleted {
			return reconcile.Result{}, err
		}
		message += why
	}
	if err := r.announce(ctx, ns, life.State, message); err != nil {
		if apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: retryStale}, nil
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	switch {
	case life.State == selfservice.Expired && consents:
		return reconcile.Result{RequeueAfter: retryRefused}, nil
	case life.Changes.IsZero():
		return reconcile.Result{}, nil
	}
	wait := min(time.Until(life.Changes), backoff.LongestWait)
	return reconcile.Result{RequeueAfter: max(wait, time.Millisecond)}, nil // the time may have come, and zero is never
}

// begin gives a namespace an end if its policy spaces limit its life.
func (r *Expiry) begin(ctx context.Context, ns *corev1.Namespace, now time.Time) (reconcile.Result, error) {
	labelled, remaining, err := spacesOf(ctx, r.Client, ns)
	if err != nil {
		return reconcile.Result{}, err
	}
	maxAge := selfservice.MaxAge(slices.Concat(labelled, remaining))
	if maxAge == 0 {
		return reconcile.Result{}, r.announce(ctx, ns, selfservice.Lives, "")
	}
	set := patch.Tested{}.Test("/metadata/uid", ns.UID).
		TestIn("/metadata/labels", ns.Labels, v1alpha1.PolicySpaceLabel). // it may have left the policy space
		SetIn("/metadata/annotations", ns.Annotations,
			map[string]string{v1alpha1.ExpiresAnnotation: selfservice.EndOf(maxAge, now)})
	err = r.Client.Status().Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}, set)
	switch {
	case patch.IsStale(err):
		return reconcile.Result{RequeueAfter: retryStale}, nil
	case apierrors.IsInvalid(err): // all annotations of a namespace together have a limited size
		err := r.announce(ctx, ns, selfservice.Invalid, fmt.Sprintf("must expire %s from now, but its annotation %s "+
			"cannot be written: %v", duration.HumanDuration(maxAge), v1alpha1.ExpiresAnnotation, err))
		if err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		return reconcile.Result{RequeueAfter: retryRefused}, nil
	case client.IgnoreNotFound(err) != nil:
		return reconcile.Result{}, fmt.Errorf("write when namespace %s expires: %w", ns.Name, err)
	}
	return reconcile.Result{}, nil // the new annotation enqueues the namespace
}

// guarded returns why a namespace stays of which a rule guards the deletion, or "": who consented may not hold the
// role.
func (r *Expiry) guarded(ctx context.Context, ns *corev1.Namespace) (string, error) {
	rules, err := r.Rules(ctx)
	if err != nil || !rules.GuardDeletion() {
		return "", err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(ns)
	if err != nil {
		return "", err
	}
	holdsNone := func(v1alpha1.RoleReference) bool { return false }
	for _, guarded := range rules.Judge(attributes.Change{Old: content}, holdsNone) {
		for _, rule := range rules.Of(guarded.Attribute, "") {
			if rule.GuardDeletion {
				return fmt.Sprintf(", and stays because %s guards its %s: a user with the role deletes it", rule,
					guarded.Attribute), nil
			}
		}
	}
	return "", nil
}

// delete deletes an expired namespace if that is wanted. Otherwise it returns why the namespace stays. It deletes only
// the version that was read: consent can be taken back until then.
func (r *Expiry) delete(
	ctx context.Context, ns *corev1.Namespace, consents bool,
) (isDeleted bool, why string, err error) {
	switch {
	case ns.Annotations[v1alpha1.DeletionProtectionAnnotation] == "true":
		return false, ", and stays because it is protected from deletion by the annotation " +
			v1alpha1.DeletionProtectionAnnotation, nil
	case !consents:
		return false, ", and stays because its users did not consent to its deletion by the annotation " +
			v1alpha1.DeleteWhenExpiredAnnotation, nil
	}
	if guarded, err := r.guarded(ctx, ns); err != nil || guarded != "" {
		return false, guarded, err
	}
	err = r.Client.Delete(ctx, ns, client.Preconditions{UID: &ns.UID, ResourceVersion: &ns.ResourceVersion})
	switch {
	case apierrors.IsConflict(err):
		return false, "", fmt.Errorf("delete namespace %s, which changed: %w", ns.Name, err) // and is tried again
	case client.IgnoreNotFound(err) != nil:
		why, err = refused(ns, err)
		return false, why, err
	}
	if err == nil { // and not another client has deleted it
		ctrl.LoggerFrom(ctx).Info("deleted an expired namespace")
	}
	return true, "", nil
}

// refused returns why a namespace stays that the API server did not delete: the operator lacks the right, of which
// Kubernetes says that the user cannot delete resource "namespaces", or an admission policy or a webhook denied the
// deletion. It returns the error if the API server did not answer, or asks to wait.
func refused(ns *corev1.Namespace, refusal error) (string, error) {
	answer := apierrors.APIStatus(nil)
	asksToWait := apierrors.IsTooManyRequests(refusal) || apierrors.IsServiceUnavailable(refusal) ||
		apierrors.IsTimeout(refusal) || apierrors.IsServerTimeout(refusal)
	if asksToWait || !errors.As(refusal, &answer) {
		return "", fmt.Errorf("delete the expired namespace %s: %w", ns.Name, refusal)
	}
	const lacksRight = ` cannot delete resource "namespaces" in API group ""`
	if apierrors.IsForbidden(refusal) && strings.Contains(refusal.Error(), lacksRight) {
		return ", and stays because the operator may not delete namespaces: apply manifests/components/expiry", nil
	}
	return fmt.Sprintf(", and stays because its deletion is denied: %v", refusal), nil
}

// announce writes the condition of a namespace, and records an Event when it changes. A namespace that lives lacks the
// condition.
func (r *Expiry) announce(ctx context.Context, ns *corev1.Namespace, state selfservice.State, message string) error {
	message = reporting.Shorten(message)
	i := slices.IndexFunc(ns.Status.Conditions, func(c corev1.NamespaceCondition) bool {
		return c.Type == v1alpha1.NamespaceExpired
	})
	if i < 0 && message == "" || i >= 0 && message != "" && ns.Status.Conditions[i].Reason == string(state) &&
		ns.Status.Conditions[i].Message == message {
		return nil
	}
	condition := map[string]any{"type": v1alpha1.NamespaceExpired, "$patch": "delete"}
	if message != "" {
		status := corev1.ConditionFalse
		if state == selfservice.Expired {
			status = corev1.ConditionTrue
		}
		condition = map[string]any{
			"type": v1alpha1.NamespaceExpired, "status": status, "reason": string(state), "message": message,
			"lastTransitionTime": metav1.Now(),
		}
	}
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": ns.UID, "resourceVersion": ns.ResourceVersion},
		"status":   map[string]any{"conditions": []any{condition}},
	})
	if err != nil {
		return err
	}
	written := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}
	err = r.Client.Status().Patch(ctx, written, client.RawPatch(types.StrategicMergePatchType, body))
	if err != nil {
		return fmt.Errorf("write that namespace %s expires: %w", ns.Name, err)
	}
	if message != "" {
		r.Recorder.Eventf(reporting.InNamespace(ns), nil, corev1.EventTypeWarning, string(state), "Expire", "%s",
			reporting.Shorten(fmt.Sprintf("namespace %s %s", ns.Name, message)))
	}
	return nil
}
