package policyspace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

// apiServer is who writes down what a request that is let in uses. Others count what is there already, which is no
// reason to refuse anything, and is seen when it is written down.
const apiServer = "system:apiserver"

// Quota holds what the API server is about to write down of what a namespace uses against the quotas of all
// policyspaces above. What it lets in it books in their statuses, each of which is written on condition that nobody
// else did: so all replicas agree, and none needs to remember anything.
type QuotaAdmission struct {
	// cached and live read PolicySpaces and Namespaces, cached ResourceQuotas too.
	cached, live client.Reader
	client       client.Client
	refusals     *Refusals
	sequence     *sequence
	changes      webhook.Changes

	mu sync.Mutex
	// desks are where bookings of a space queue.
	desks map[string]*reservationWriter
	// booked are the bookings that the cache has, by space and namespace.
	booked map[string]map[string]seenReservation
}

// known is a booking, by the resourceVersion that it goes on from, and when it was first seen.
type seenReservation struct {
	since string
	at    time.Time
}

// NewQuotaAdmission returns the validator. Denials are recorded in refusals.
func NewQuotaAdmission(
	ctx context.Context, cached cache.Cache, live client.Reader, writer client.Client, refusals *Refusals,
) (*QuotaAdmission, error) {
	q := &QuotaAdmission{
		cached: cached, live: live, client: writer, refusals: refusals, sequence: newSequence(),
		desks: map[string]*reservationWriter{}, booked: map[string]map[string]seenReservation{},
	}
	for _, kind := range []client.Object{&corev1.Namespace{}, &corev1.ResourceQuota{}} {
		if _, err := cached.GetInformer(ctx, kind, cache.BlockUntilSynced(false)); err != nil {
			return nil, err
		}
	}
	spaces, err := cached.GetInformer(ctx, &v1alpha1.PolicySpace{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	_, err = spaces.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { q.changed(&v1alpha1.PolicySpace{}, object.(*v1alpha1.PolicySpace)) },
		UpdateFunc: func(old, object any) { q.changed(old.(*v1alpha1.PolicySpace), object.(*v1alpha1.PolicySpace)) },
		DeleteFunc: func(object any) {
			if name, err := toolscache.DeletionHandlingObjectToName(object); err == nil {
				q.forget(name.Name)
			}
			q.changes.Notify()
		},
	})
	return q, err
}

// changed sees what other replicas booked.
func (q *QuotaAdmission) changed(old, space *v1alpha1.PolicySpace) {
	if old.UID != space.UID || !equality.Semantic.DeepEqual(old.Spec, space.Spec) {
		q.changes.Notify()
	}
	q.remember(space)
	before := make(map[string]string, len(old.Status.Bookings))
	for i := range old.Status.Bookings {
		before[old.Status.Bookings[i].Namespace] = old.Status.Bookings[i].Since
	}
	for i := range space.Status.Bookings {
		if booking := &space.Status.Bookings[i]; before[booking.Namespace] != booking.Since {
			q.sequence.decided(booking.Namespace, decision{since: booking.Since})
		}
	}
}

// remember notes when bookings were first seen.
func (q *QuotaAdmission) remember(space *v1alpha1.PolicySpace) {
	q.mu.Lock()
	defer q.mu.Unlock()
	before, now := q.booked[space.Name], map[string]seenReservation{}
	for i := range space.Status.Bookings {
		booking := &space.Status.Bookings[i]
		if now[booking.Namespace] = before[booking.Namespace]; now[booking.Namespace].since != booking.Since {
			now[booking.Namespace] = seenReservation{booking.Since, time.Now()}
		}
	}
	q.booked[space.Name] = now
}

func (q *QuotaAdmission) forget(space string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.booked, space)
}

// Validate is asked about updates of the statuses of ResourceQuotas.
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
	if err := q.confirm(ctx, change); err != nil {
		return err
	}
	decided := decision{since: change.Since}
	err = q.check(ctx, spaces, change)
	if err == nil && !dryRun(request) {
		err = q.bookAll(ctx, spaces, change)
	}
	if err != nil {
		decided.denied, decided.used = true, change.String()
		_, decided.contended = errors.AsType[*webhook.Deferred](err)
	}
	q.sequence.decided(request.Namespace, decided)
	return q.refuse(request, err, true)
}

// refuse makes an objection of what a quota says, and tells of it: charged is whether other quotas may have been
// charged already. Any other error leaves the request undecided.
func (q *QuotaAdmission) refuse(request *webhook.Request, err error, charged bool) error {
	if exceeded, ok := errors.AsType[*quota.ExceededError](err); ok {
		if !dryRun(request) {
			q.refusals.Record(Refusal{Namespace: request.Namespace, Exceeded: exceeded, Charged: charged})
		}
		return webhook.Deny(exceeded.Error())
	}
	if err != nil && !dryRun(request) && charged {
		q.refusals.Record(Refusal{Namespace: request.Namespace, Charged: true})
	}
	if uncounted, ok := errors.AsType[*quota.UncountedError](err); ok {
		return webhook.Deny(uncounted.Error())
	}
	return err
}

func dryRun(request *webhook.Request) bool { return request.DryRun != nil && *request.DryRun }

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

// spacesOf returns the policyspaces that a namespace's usage counts in, the nearest first.
func (q *QuotaAdmission) spacesOf(ctx context.Context, namespace string) ([]string, error) {
	ns, err := q.namespace(ctx, namespace)
	if err != nil {
		return nil, err
	}
	return q.charged(ctx, ns)
}

// charged is hierarchy.Charged, but a namespace that moves to a policyspace which does not count it yet is to come
// again: it does in a moment.
func (q *QuotaAdmission) charged(ctx context.Context, ns *corev1.Namespace) ([]string, error) {
	in := hierarchy.SpacesOf(ns)
	gone := false
	get := func(name string) (*v1alpha1.PolicySpace, error) {
		space, err := q.get(ctx, q.cached, name)
		gone = gone || err == nil && space == nil && slices.Contains(in, name)
		return space, err
	}
	names, err := hierarchy.Charged(ns, get)
	if err == nil && gone {
		// It may be on its way to another policyspace, which the cache does not know.
		ns = ns.DeepCopy()
		if err = q.live.Get(ctx, client.ObjectKeyFromObject(ns), ns); err == nil {
			in = hierarchy.SpacesOf(ns)
			names, err = hierarchy.Charged(ns, get)
		}
	}
	if err != nil {
		return nil, err
	}
	entering, err := hierarchy.LineageOf(ns, get)
	if err != nil {
		return nil, err
	}
	for _, replacement := range hierarchy.Replacements(in, entering) {
		space, err := get(replacement.New)
		if err != nil {
			return nil, err
		}
		if space != nil && !counts(space, replacement.Old) {
			message := fmt.Sprintf("namespace %s moves to policyspace %s: try again in a moment", ns.Name, space.Name)
			return nil, &webhook.Deferred{Message: message, After: webhook.RetryAfter}
		}
	}
	return names, nil
}

// counts reports whether what is used in another policyspace counts in one, or need not, since the one does not take
// the other's place.
func counts(space *v1alpha1.PolicySpace, other string) bool {
	return len(quota.Hard(space)) == 0 || !MayReplace(space, int(space.Status.Namespaces)) ||
		slices.ContainsFunc(space.Status.SharedWith, func(s v1alpha1.PolicySpaceShare) bool { return s.Name == other })
}

// namespace reads a namespace, which the cache may not know yet.
func (q *QuotaAdmission) namespace(ctx context.Context, name string) (*corev1.Namespace, error) {
	ns := &corev1.Namespace{}
	err := q.cached.Get(ctx, client.ObjectKey{Name: name}, ns, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		err = q.live.Get(ctx, client.ObjectKey{Name: name}, ns)
	}
	if err != nil {
		return nil, fmt.Errorf("read namespace %s: %w", name, err)
	}
	return ns, nil
}

// check looks at all spaces before anything is booked in one. What the cache has against a request may be out of date.
func (q *QuotaAdmission) check(ctx context.Context, spaces []string, change quota.Change) error {
	for _, name := range spaces {
		cached, err := q.get(ctx, q.cached, name)
		if err == nil && cached != nil && quota.Check(cached, change) == nil {
			continue
		}
		space, err := q.get(ctx, q.live, name)
		if err != nil {
			return err
		}
		if space == nil {
			if cached != nil {
				return outdated(change.Namespace) // it may count elsewhere by now
			}
			continue
		}
		if _, err := q.makeRoom(ctx, space, change); err != nil {
			return err
		}
	}
	return nil
}

// room is quota.Check, but that what several requests use together is refused for now if there is room for one; if not,
// each is told what it asked for.
func room(space *v1alpha1.PolicySpace, change quota.Change) error {
	err := quota.Check(space, change)
	if _, exceeded := errors.AsType[*quota.ExceededError](err); !exceeded {
		return err
	}
	one, several := change.One()
	if !several {
		return err
	}
	if ofOne := quota.Check(space, one); ofOne != nil {
		return ofOne
	}
	return &webhook.Deferred{
		Message: fmt.Sprintf(
			"policyspace %s has room for some of the requests that came at once, and not for all of them: try again",
			space.Name),
	}
}

// get returns a space, or nil if there is none.
func (q *QuotaAdmission) get(ctx context.Context, from client.Reader, name string) (*v1alpha1.PolicySpace, error) {
	space := &v1alpha1.PolicySpace{}
	err := from.Get(ctx, client.ObjectKey{Name: name}, space, client.UnsafeDisableDeepCopy)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read policyspace %s: %w", name, err)
	}
	return space, nil
}

// Plugin returns the row of the chain.
func (q *QuotaAdmission) Plugin() webhook.Plugin {
	return webhook.Plugin{
		Name: "quota", Validator: q,
		Rules: []admissionregistrationv1.RuleWithOperations{
			webhook.Rule("", "v1", admissionregistrationv1.NamespacedScope, []string{"resourcequotas/status"},
				admissionregistrationv1.Update),
		},
		MatchConditions: []admissionregistrationv1.MatchCondition{{
			Name: "counts-for-policyspaces",
			Expression: "request.name == '" + v1alpha1.QuotaName + "' && request.userInfo.username == '" +
				apiServer + "'",
		}},
		FailurePolicy:  admissionregistrationv1.Fail, // more would be used than may be
		TimeoutSeconds: 8,                            // the API server waits for 10 s
	}
}
