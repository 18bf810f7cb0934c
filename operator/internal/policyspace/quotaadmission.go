package policyspace

import (
	"context"
	"errors"
	"fmt"
	"sync"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// apiServer is the user that writes the usage of a request before the request is allowed. Other users, such as the
// controller that counts, write the usage of objects that exist already. Their updates are not checked; the controller
// of policy spaces adds their usage to the sum once the cache contains it.
const apiServer = "system:apiserver"

// QuotaAdmission validates updates of usage quotas by the API server. It allows an update if the quotas of all policy
// spaces above the namespace have room for it, and reserves the usage in the statuses of these policy spaces. A status
// is written on the condition that no other replica wrote it meanwhile, so all replicas agree.
type QuotaAdmission struct {
	// cached and live read PolicySpaces and Namespaces; cached reads usage quotas, too.
	cached, live client.Reader
	client       client.Client
	denials      *Denials
	sequence     *sequence
	changes      webhook.Changes

	mu sync.Mutex
	// writers write the reservations of policy spaces, by name.
	writers map[string]*reservationWriter
	// reservations are the reservations in the cache.
	reservations knownReservations
	// written has the policy spaces with the reservations that were written, by name.
	written freshness.Store[string, *v1alpha1.PolicySpace]
}

// NewQuotaAdmission returns the validator. It records denials in denials.
func NewQuotaAdmission(ctx context.Context, mgr ctrl.Manager, denials *Denials) (*QuotaAdmission, error) {
	cached := mgr.GetCache()
	q := &QuotaAdmission{
		cached: cached, live: mgr.GetAPIReader(), client: mgr.GetClient(), denials: denials, sequence: newSequence(),
		writers: map[string]*reservationWriter{},
	}
	for _, kind := range []client.Object{&corev1.Namespace{}, &corev1.ResourceQuota{}} {
		if _, err := cached.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return nil, err
		}
	}
	return q, watch.OnChange(ctx, cached, &v1alpha1.PolicySpace{}, q.spaceChanged)
}

// spaceChanged handles a change of a policy space in the cache. A reservation by another replica releases the next
// request of the namespace on this replica.
func (q *QuotaAdmission) spaceChanged(old, space *v1alpha1.PolicySpace) {
	if space == nil {
		q.reservations.update(old.Name, nil)
		q.written.Deleted(old.Name, old.UID)
		q.mu.Lock()
		// Requests that still use it write on the condition that no other request has written meanwhile.
		delete(q.writers, old.Name)
		q.mu.Unlock()
		q.changes.Notify()
		return
	}
	if old == nil || old.UID != space.UID || !equality.Semantic.DeepEqual(old.Spec, space.Spec) {
		q.changes.Notify()
	}
	for _, key := range q.reservations.update(space.Name, keysOf(space.Status.Reservations)) {
		q.sequence.decided(key.namespace, decision{since: key.since})
	}
}

// Validate implements webhook.Validator for updates of the statuses of ResourceQuotas.
func (q *QuotaAdmission) Validate(ctx context.Context, request *webhook.Request) error {
	if request.SubResource != "status" || request.Name != v1alpha1.QuotaName ||
		request.UserInfo.Username != apiServer ||
		request.Object == nil || request.OldObject == nil {
		return nil
	}
	change, err := changeOf(request)
	if err != nil || len(change.Adds()) == 0 {
		return err
	}
	spaces, err := q.spacesOf(ctx, request.Namespace)
	if err != nil {
		return err
	}
	if len(spaces) == 0 {
		return nil
	}
	if err := q.checkStored(ctx, change); err != nil {
		return err
	}
	known, err := q.readerFor(ctx, spaces, change)
	if err != nil {
		return err
	}
	err = q.checkRoom(ctx, known, spaces, change)
	if err == nil && !isDryRun(request) {
		err = q.reserveAll(ctx, known, spaces, change)
	}
	isNew := q.sequence.decided(request.Namespace, decisionOf(change, err))
	err = q.passing(ctx, request.Namespace, err)
	if !isNew && err != nil { // it was recorded when the API server asked first, or is the same one on another replica
		if !isDryRun(request) {
			q.denials.Record(Denial{Namespace: request.Namespace, MayBeCharged: true})
		}
		return denial(err)
	}
	return q.deny(request, err, true)
}

// decisionOf returns the decision about a change, which is denied if err is not nil.
func decisionOf(change quota.Change, err error) decision {
	decided := decision{since: change.Since}
	if err != nil {
		decided.denied, decided.used = true, change.String()
		_, decided.contended = errors.AsType[*webhook.Deferred](err)
	}
	return decided
}

// deny is like denial, but also records it. mayBeCharged is whether the API server may have charged other
// ResourceQuotas of the namespace for the request.
func (q *QuotaAdmission) deny(request *webhook.Request, err error, mayBeCharged bool) error {
	if err != nil && !isDryRun(request) {
		exceeded, _ := errors.AsType[*quota.ExceededError](err)
		q.denials.Record(Denial{Namespace: request.Namespace, Exceeded: exceeded, MayBeCharged: mayBeCharged})
	}
	return denial(err)
}

// denial returns a denial for an error of package quota. Any other error is returned as it is.
func denial(err error) error {
	if exceeded, ok := errors.AsType[*quota.ExceededError](err); ok {
		return webhook.Deny(codes.QuotaExceeded, exceeded.Error())
	}
	if uncounted, ok := errors.AsType[*quota.UncountedError](err); ok {
		return webhook.Deny(codes.QuotaUncounted, uncounted.Error())
	}
	return err
}

func isDryRun(request *webhook.Request) bool { return request.DryRun != nil && *request.DryRun }

// changeOf returns the change of usage in an update of a usage quota.
func changeOf(request *webhook.Request) (quota.Change, error) {
	before, after := &corev1.ResourceQuota{}, &corev1.ResourceQuota{}
	err := errors.Join(
		runtime.DefaultUnstructuredConverter.FromUnstructured(request.OldObject.Object, before),
		runtime.DefaultUnstructuredConverter.FromUnstructured(request.Object.Object, after))
	if err != nil {
		return quota.Change{},
			fmt.Errorf("read ResourceQuota %s of namespace %s: %w", request.Name, request.Namespace, err)
	}
	return quota.Change{
		Namespace: request.Namespace, Old: before.Status.Used, New: after.Status.Used, Since: before.ResourceVersion,
	}, nil
}

// quotaPlugin is the name of the plugin for limits on objects.
const quotaPlugin = "quota"

// Plugin returns the row of the admission chain.
func (q *QuotaAdmission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: quotaPlugin, Validator: q,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule("", "v1", admissionregistrationv1.NamespacedScope, []string{"resourcequotas/status"},
				admissionregistrationv1.Update),
		},
		MatchConditions: []admissionregistrationv1.MatchCondition{{
			Name: "counts-for-policyspaces",
			Expression: "request.name == '" + v1alpha1.QuotaName + "' && request.userInfo.username == '" +
				apiServer + "'",
		}},
		FailurePolicy:  admissionregistrationv1.Fail, // otherwise usage would exceed limits while no replica answers
		TimeoutSeconds: 8,                            // the API server waits 10 seconds for its own update
	}
}
