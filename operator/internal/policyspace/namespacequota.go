package policyspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/freshness"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// censusTimeout is how long a request waits until the census is as new as the reservations that ended.
	censusTimeout = 3 * time.Second
	// roomTimeout is how long a request without room waits for reservations to end. A namespace is usually stored, and
	// seen by the census, within some milliseconds.
	roomTimeout = time.Second
	// lateTimeout is how long a request without room waits for a deletion that the census has not seen yet.
	lateTimeout = 50 * time.Millisecond
	// firstRetry is the delay before the first retry. Each of the next ones is twice as long.
	firstRetry = 25 * time.Millisecond
	// maxReservations bounds the reservations for namespaces in a status, which an object of the API server must hold.
	maxReservations = 500
	// maxOfName bounds how many of them are for the same name. These take the room of one namespace, so without a
	// bound, a user who creates the same namespace many times at once would fill the status for all other users.
	maxOfName = 10
	// maxConditioned is how many policy spaces a match condition names.
	maxConditioned = 500
)

// NamespaceQuota validates requests that put a namespace into a policy space, by creating it or by changing its label.
// It allows a request if all policy spaces in which the namespace is new have room, and reserves the room in their
// statuses. Its methods are safe for concurrent use.
type NamespaceQuota struct {
	cached, live client.Reader
	client       client.Client
	totals       *namespaceTotals
	denials      *Denials
	changes      *webhook.Changes

	mu sync.Mutex
	// writing has, by policy space, a channel that holds a value while one request writes a reservation.
	writing map[string]chan struct{}
	// written has the policy spaces with the reservations that were written, by name.
	written freshness.Store[string, *v1alpha1.PolicySpace]
}

// placing is a namespace that a request puts into policy spaces.
type placing struct {
	reservation v1alpha1.NamespaceReservation
	creator     quota.Creator
	// entered are the policy spaces that limit namespaces and in which the namespace is new, the nearest first, as the
	// API server has them.
	entered []*v1alpha1.PolicySpace
}

// Validate implements webhook.Validator for creations and updates of Namespaces. It handles only requests from its own
// webhooks, so that a namespace is reserved once, and denies nothing if an earlier plugin has denied the request.
func (q *NamespaceQuota) Validate(ctx context.Context, request *webhook.Request) error {
	if request.Revision == "" || request.Object == nil || request.IsDenied {
		return nil
	}
	space, before := request.Object.GetLabels()[v1alpha1.PolicySpaceLabel], ""
	if request.OldObject != nil {
		before = request.OldObject.GetLabels()[v1alpha1.PolicySpaceLabel]
	}
	if space == "" || space == before || match.IsSystemNamespace(request.Object.GetName()) {
		return nil
	}
	p, err := q.placingOf(ctx, request, space, before)
	if err != nil || len(p.entered) == 0 {
		return err
	}
	return q.deny(request, q.allow(ctx, p, isDryRun(request)))
}

// placingOf returns what a request puts into policy spaces.
func (q *NamespaceQuota) placingOf(
	ctx context.Context, request *webhook.Request, space, before string,
) (p placing, err error) {
	object := request.Object
	p.reservation = v1alpha1.NamespaceReservation{Name: object.GetName(), UID: object.GetUID()}
	recorded := object.GetAnnotations()[v1alpha1.CreatorAnnotation]
	p.creator = quota.Creator{Name: recorded} // another user, only if the requester has the verb set-creator
	if request.OldObject == nil && recorded == "" || recorded == request.UserInfo.Username {
		p.creator = quota.Creator{Name: request.UserInfo.Username, Groups: request.UserInfo.Groups}
	}
	if request.OldObject != nil {
		p.reservation.Since = request.OldObject.GetResourceVersion()
	}
	p.reservation.Creator = p.creator.Name
	if p.entered, err = q.enteredSpaces(ctx, space, before); err != nil || len(p.entered) == 0 {
		return p, err
	}
	if p.reservation.UID == "" {
		return p, fmt.Errorf("namespace %s has no UID in the review", p.reservation.Name)
	}
	if request.OldObject == nil && recorded != p.creator.Name && p.isLimitedByCreator() {
		// The namespace would not count for its creator. Before Kubernetes 1.36, the operator's webhook records it.
		return p, webhook.Defer(codes.Busy, fmt.Sprintf("the creator of namespace %s is not recorded, and policyspace %s "+
			"limits the namespaces per creator: try again", p.reservation.Name, p.entered[0].Name), webhook.RetryAfter)
	}
	return p, q.checkStored(ctx, p)
}

// enteredSpaces returns the policy spaces that limit namespaces and in which a namespace is new if its label changes,
// the nearest first, as the API server has them.
func (q *NamespaceQuota) enteredSpaces(ctx context.Context, space, before string) ([]*v1alpha1.PolicySpace, error) {
	lineage, err := Lineage(ctx, q.live, space)
	if err != nil {
		return nil, err
	}
	left, err := Lineage(ctx, q.live, before)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(lineage, func(entered *v1alpha1.PolicySpace) bool {
		return !quota.LimitsNamespaces(entered) ||
			slices.ContainsFunc(left, func(s *v1alpha1.PolicySpace) bool { return s.Name == entered.Name })
	}), nil
}

// isLimitedByCreator reports whether a policy space limits how many namespaces the creator may have.
func (p *placing) isLimitedByCreator() bool {
	return slices.ContainsFunc(p.entered, func(space *v1alpha1.PolicySpace) bool {
		_, limited := quota.CreatorLimit(quota.PerCreator(space), p.creator)
		return limited
	})
}

// checkStored checks that a namespace which is created does not exist, and that one which moves goes on from its stored
// state. The API server refuses every other write, so a reservation for it would take room until it expires. Clients
// may create a namespace often, to be sure that it exists, and the sender of a review may not be the API server.
func (q *NamespaceQuota) checkStored(ctx context.Context, p placing) error {
	stored := &metav1.PartialObjectMetadata{}
	stored.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	err := q.live.Get(ctx, client.ObjectKey{Name: p.reservation.Name}, stored)
	isMissing, isCreated := apierrors.IsNotFound(err), p.reservation.Since == ""
	switch {
	case err != nil && !isMissing:
		return fmt.Errorf("read namespace %s: %w", p.reservation.Name, err)
	case isCreated && !isMissing:
		return webhook.AlreadyExists(corev1.Resource("namespaces"), p.reservation.Name)
	case !isCreated && (stored.UID != p.reservation.UID || stored.ResourceVersion != p.reservation.Since):
		return webhook.Defer(codes.Busy,
			fmt.Sprintf("namespace %s changed while the request was checked: try again", p.reservation.Name), 0)
	}
	return nil
}

// allow reserves room for a namespace in all policy spaces that it enters. A request without room is tried again for a
// moment if the room may become free by then.
func (q *NamespaceQuota) allow(ctx context.Context, p placing, dryRun bool) error {
	started := time.Now()
	for delay := firstRetry; ; delay *= 2 {
		err := q.tryAllow(ctx, p, dryRun)
		timeout := lateTimeout
		if _, isPending := errors.AsType[*quota.PendingError](err); isPending {
			timeout = roomTimeout
		} else if !isExceeded(err) {
			return err
		}
		if time.Since(started) >= timeout {
			return err
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return err
		}
		if errRead := q.readAgain(ctx, &p); errRead != nil {
			return errRead
		}
	}
}

// readAgain reads the policy spaces that a namespace enters from the API server again.
func (q *NamespaceQuota) readAgain(ctx context.Context, p *placing) error {
	entered := p.entered
	p.entered = nil
	for _, space := range entered {
		current, err := getSpace(ctx, q.live, space.Name)
		if err != nil {
			return err
		}
		if current != nil {
			p.entered = append(p.entered, current)
		}
	}
	return nil
}

// isExceeded reports whether an error is that of a limit which existing namespaces use up.
func isExceeded(err error) bool {
	_, isOfSpace := errors.AsType[*quota.ExceededError](err)
	_, isOfCreator := errors.AsType[*quota.CreatorExceededError](err)
	return isOfSpace || isOfCreator
}

// tryAllow reserves room for a namespace in all policy spaces that it enters, or in none. It checks all of them first,
// so that few reservations are canceled.
func (q *NamespaceQuota) tryAllow(ctx context.Context, p placing, dryRun bool) error {
	if len(p.entered) > 1 || dryRun {
		for _, space := range p.entered {
			if _, err := q.check(ctx, space, p); err != nil {
				return err
			}
		}
	}
	if dryRun {
		return nil
	}
	for i, space := range p.entered {
		if err := q.reserve(ctx, space, p); err != nil {
			q.cancel(ctx, p.entered[:i], p.reservation)
			return err
		}
	}
	return nil
}

// check checks that a policy space has room for a namespace. It returns how many others count there.
func (q *NamespaceQuota) check(
	ctx context.Context, space *v1alpha1.PolicySpace, p placing,
) (use quota.NamespaceUse, err error) {
	if !q.totals.census.wait(ctx, space.Status.NamespacesAsOf, censusTimeout) {
		return use, webhook.Defer(codes.Busy, "the operator has not counted the namespaces of policyspace "+space.Name+
			" yet: try again", webhook.RetryAfter)
	}
	if use, err = q.totals.use(ctx, space, p.reservation); err != nil {
		return use, err
	}
	return use, quota.CheckNamespaces(space, p.creator, use)
}

// spaceChanged forgets a policy space that was deleted from the cache. Requests that still write to it do so on the
// condition that no other request has written meanwhile.
func (q *NamespaceQuota) spaceChanged(old, space *v1alpha1.PolicySpace) {
	if space != nil {
		return
	}
	q.written.Deleted(old.Name, old.UID)
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.writing, old.Name)
}

func (q *NamespaceQuota) writingTo(space string) chan struct{} {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.writing[space] == nil {
		q.writing[space] = make(chan struct{}, 1)
	}
	return q.writing[space]
}

// reserve reserves room for a namespace in a policy space. known is the policy space as it was read.
func (q *NamespaceQuota) reserve(ctx context.Context, known *v1alpha1.PolicySpace, p placing) error {
	return q.write(ctx, known, func(space *v1alpha1.PolicySpace) (*v1alpha1.PolicySpaceStatus, error) {
		if !quota.LimitsNamespaces(space) {
			return nil, nil
		}
		use, err := q.check(ctx, space, p)
		if err != nil {
			return nil, err
		}
		status := *space.Status.DeepCopy()
		remaining, asOf := q.totals.census.remaining(status.NamespaceReservations)
		if len(remaining) >= maxReservations {
			return nil, &quota.PendingError{Space: space.Name, Reserved: len(remaining)}
		}
		if otherReservations(remaining, p.reservation) >= maxOfName {
			return nil, webhook.Defer(codes.Busy, fmt.Sprintf("%d other requests create namespace %s: try again",
				maxOfName, p.reservation.Name), webhook.RetryAfter)
		}
		status.NamespaceReservations = quota.WithReservation(remaining, p.reservation)
		status.NamespacesAsOf = freshness.Newest(status.NamespacesAsOf, asOf)
		return new(quota.WithNamespaces(space, status, use.Existing+use.Reserved+1)), nil
	})
}

// otherReservations returns how many reservations are for other namespaces of the same name, of which one can exist.
func otherReservations(reservations []v1alpha1.NamespaceReservation, of v1alpha1.NamespaceReservation) int {
	others := 0
	for _, r := range reservations {
		if r.Name == of.Name && r.UID != of.UID {
			others++
		}
	}
	return others
}

// cancelTimeout limits how long a denied request may take to cancel its reservations. Others expire.
const cancelTimeout = 5 * time.Second

// cancel removes the reservations of a request that is denied.
func (q *NamespaceQuota) cancel(
	ctx context.Context, spaces []*v1alpha1.PolicySpace, canceled v1alpha1.NamespaceReservation,
) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cancelTimeout)
	defer cancel()
	for _, known := range spaces {
		err := q.write(ctx, known, func(space *v1alpha1.PolicySpace) (*v1alpha1.PolicySpaceStatus, error) {
			i := slices.Index(space.Status.NamespaceReservations, canceled)
			if i < 0 {
				return nil, nil
			}
			status := space.Status.DeepCopy()
			status.NamespaceReservations = slices.Delete(status.NamespaceReservations, i, i+1)
			return status, nil
		})
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot cancel a reservation, which expires", "policyspace", known.Name)
		}
	}
}

// write writes a status of a policy space if it does not change meanwhile, and otherwise lets change compute it again.
// change returns nil if nothing is to be written. Requests of this replica write one after the other.
func (q *NamespaceQuota) write(
	ctx context.Context, known *v1alpha1.PolicySpace,
	change func(*v1alpha1.PolicySpace) (*v1alpha1.PolicySpaceStatus, error),
) error {
	writing := q.writingTo(known.Name)
	select {
	case writing <- struct{}{}:
		defer func() { <-writing }()
	case <-ctx.Done():
		return fmt.Errorf("reserve a namespace in policyspace %s: %w", known.Name, ctx.Err())
	}
	space := q.written.Latest(known.Name, known)
	for {
		status, err := change(space)
		if status == nil || err != nil {
			return err
		}
		changed := space.DeepCopy()
		changed.Status = *status
		err = q.client.Status().Update(ctx, changed)
		if err == nil {
			q.written.Written(known.Name, changed)
			return nil
		}
		if !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("reserve a namespace in policyspace %s: %w", space.Name, err)
		}
		if space, err = getSpace(ctx, q.live, known.Name); err != nil || space == nil {
			return err
		}
	}
}

// deny returns the denial or the deferral for an error of package quota. Any other error is returned as it is.
func (q *NamespaceQuota) deny(request *webhook.Request, err error) error {
	var space string
	code := codes.QuotaExceeded
	exceeded, ofSpace := errors.AsType[*quota.ExceededError](err)
	ofCreator, isOfCreator := errors.AsType[*quota.CreatorExceededError](err)
	pending, isPending := errors.AsType[*quota.PendingError](err)
	switch {
	case isPending:
		return webhook.Defer(codes.Busy, pending.Error(), webhook.RetryAfter)
	case ofSpace:
		space = exceeded.Space
	case isOfCreator:
		space, code = ofCreator.Space, codes.CreatorQuota
	default:
		return err
	}
	if !isDryRun(request) {
		q.denials.denied.WithLabelValues(space).Inc()
	}
	return webhook.Deny(code, err.Error())
}

const (
	// limitedPlugin is the name of the plugin for policy spaces with a limit, and of those below them. Its webhook
	// denies if no replica answers.
	limitedPlugin = "namespace-quota"
	// placingAnywhere is the name of its match condition if that names no policy spaces.
	placingAnywhere = "is-put-into-a-policyspace"
)

// Plugins returns the rows of the admission chain. While no replica answers, no namespace is put into a policy space
// with a limit. Namespaces in other policy spaces go on, and so do those in policy spaces of which the webhook
// configuration does not know yet that they are below a limit; they are counted later.
func (q *NamespaceQuota) Plugins() []webhook.Plugin {
	plugin := func(
		name string, webhooks func(context.Context) ([]webhook.Webhook, error),
		failure admissionregistrationv1.FailurePolicyType,
	) webhook.Plugin {
		return webhook.Plugin{
			Name: name, Validator: q, Rules: placingRules(), FailurePolicy: failure,
			ObjectSelector: inSpaces(), TimeoutSeconds: 10, Webhooks: webhooks, Changes: q.changes,
		}
	}
	return []webhook.Plugin{
		plugin(limitedPlugin, q.limitedWebhooks, admissionregistrationv1.Fail),
		plugin("namespace-quota-elsewhere", q.otherWebhooks, admissionregistrationv1.Ignore),
	}
}

// placingRules match every request that can change the label of a namespace.
func placingRules() []admissionregistrationv1.RuleWithOperations {
	return []admissionregistrationv1.RuleWithOperations{webhook.Rule("", "v1", admissionregistrationv1.ClusterScope,
		[]string{"namespaces", "namespaces/status", "namespaces/finalize"},
		admissionregistrationv1.Create, admissionregistrationv1.Update)}
}

// limitedWebhooks returns the webhook for namespaces that are put into policy spaces with a limit, or below. It returns
// none if nothing is limited.
func (q *NamespaceQuota) limitedWebhooks(ctx context.Context) ([]webhook.Webhook, error) {
	limited, err := q.limitedSpaces(ctx)
	if err != nil || len(limited) == 0 {
		return nil, err
	}
	if len(limited) > maxConditioned {
		return placingWebhook(placingAnywhere), nil
	}
	return placingWebhook("is-put-into-a-limited-policyspace", "object."+spaceLabel+".orValue('') in "+list(limited)), nil
}

// otherWebhooks returns the webhook for namespaces that are put into other policy spaces: one that is created now may
// be below a limit. It returns none if limitedWebhooks returns none, or one for all policy spaces.
func (q *NamespaceQuota) otherWebhooks(ctx context.Context) ([]webhook.Webhook, error) {
	limited, err := q.limitedSpaces(ctx)
	if err != nil || len(limited) == 0 || len(limited) > maxConditioned {
		return nil, err
	}
	return placingWebhook("is-put-into-another-policyspace",
		"!(object."+spaceLabel+".orValue('') in "+list(limited)+")"), nil
}

// spaceLabel is the CEL expression of the policyspace label of a namespace.
const spaceLabel = "metadata.?labels[?'" + v1alpha1.PolicySpaceLabel + "']"

// changesSpace is the CEL expression of whether a request sets or changes the label.
const changesSpace = "oldObject == null || object." + spaceLabel + " != oldObject." + spaceLabel

// list returns a list of names in CEL.
func list(names []string) string { return "['" + strings.Join(names, "', '") + "']" }

// placingWebhook returns the webhook for namespaces that are put into a policy space, if more conditions hold.
func placingWebhook(name string, conditions ...string) []webhook.Webhook {
	conditions = append([]string{changesSpace}, conditions...)
	return []webhook.Webhook{{
		Rules: placingRules(), MatchConditions: webhook.Every(name, conditions...), Revision: webhook.OwnWebhook,
	}}
}

// limitedSpaces returns the names of the policy spaces that limit the number of namespaces, and of those below them,
// sorted.
func (q *NamespaceQuota) limitedSpaces(ctx context.Context) ([]string, error) {
	limiting, err := limitingNamespaces(ctx, q.cached)
	if err != nil || len(limiting) == 0 {
		return nil, err
	}
	forest, err := q.totals.cachedForest(ctx)
	if err != nil {
		return nil, err
	}
	limited := map[string]bool{}
	for _, space := range limiting {
		maps.Copy(limited, forest.Below(space.Name))
	}
	return slices.Sorted(maps.Keys(limited)), nil
}
