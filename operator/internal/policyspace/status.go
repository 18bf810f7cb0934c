package policyspace

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/reporting"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

const (
	// manySettled is how many settled reservations may remain in a status in which nothing else changes. Settled
	// reservations need no write of their own: they change no sum.
	manySettled = 100
	// ready is the reason of the condition Ready of a policy space of which nothing else is to say.
	ready = "Ready"
	// maxNamed is how many namespaces a condition names.
	maxNamed = 3
)

// updateStatus writes the status of a policy space if it changes. The write fails if admission has reserved usage
// since the policy space was read; then it is reconciled again.
func (r *Spaces) updateStatus(ctx context.Context, stored *v1alpha1.PolicySpace) (reconcile.Result, error) {
	space, nextEnd := withoutEnded(stored, r.isEmpty)
	counted, isKnown, err := r.countNamespaces(ctx, space)
	if err != nil {
		return reconcile.Result{}, err
	}
	if !isKnown {
		return reconcile.Result{RequeueAfter: freshnessPoll}, nil
	}
	namespaces, observed, err := r.observe(ctx, space)
	if err != nil {
		return reconcile.Result{}, err
	}
	position := r.positionOf(space.Name, len(r.Members.inside(space.Name)))
	status, pending := nextStatus(space, namespaces, observed, position, counted)
	r.Metrics.setQuota(space.Name, quota.Hard(space), status.Used)
	remaining, err := r.endExpired(ctx, space.Name, status, pending)
	if err != nil {
		return reconcile.Result{}, err
	}
	result := reconcile.Result{
		RequeueAfter: sooner(sooner(nextCheck(space, status, remaining), nextEnd), counted.nextCheck),
	}
	if !mustWrite(stored.Status, status) {
		return result, nil
	}
	changed := space.DeepCopy()
	changed.Status = status
	err = r.Client.Status().Update(ctx, changed)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: usageDelay}, nil
	case err == nil:
		r.written.Written(changed.Name, changed)
	}
	return result, client.IgnoreNotFound(err)
}

// namespaceCount is what is known about the number of namespaces in and below a policy space, and about the webhooks
// that enforce limits.
type namespaceCount struct {
	webhooks webhook.State
	// isEnforced reports whether the limits on it are enforced, if there are any.
	isEnforced bool
	// nextCheck is when to count again: 0 if only events require it.
	nextCheck time.Duration
}

// countNamespaces sets the number of namespaces, its limit and the reservations for namespaces in the status of a
// policy space. isKnown is false while the census is behind the status.
func (r *Spaces) countNamespaces(
	ctx context.Context, space *v1alpha1.PolicySpace,
) (counted namespaceCount, isKnown bool, err error) {
	if hasLimits(space) {
		counted.webhooks, err = r.Stored.State(ctx, v1alpha1.WebhookName, quotaPlugin)
	}
	if err != nil {
		return counted, true, err
	}
	if counted.webhooks != webhook.Configured {
		r.enforcement.reset()
	}
	isLimited := quota.LimitsNamespaces(space)
	if isLimited && !r.totals.census.wait(ctx, space.Status.NamespacesAsOf, 0) {
		return counted, false, nil
	}
	space.Status, counted.nextCheck, err = r.totals.settle(ctx, space)
	if err != nil || !isLimited || counted.webhooks != webhook.Configured {
		return counted, true, err
	}
	if counted.isEnforced, err = r.enforcement.probe(ctx, space); err != nil {
		return counted, true, err
	}
	if !counted.isEnforced {
		counted.nextCheck = sooner(counted.nextCheck, freshnessPoll)
	}
	if limit, isLimited := quota.Hard(space)[quota.Namespaces]; isLimited && counted.isEnforced {
		space.Status.Hard = maps.Clone(space.Status.Hard)
		if space.Status.Hard == nil {
			space.Status.Hard = corev1.ResourceList{}
		}
		space.Status.Hard[quota.Namespaces] = limit
	}
	return counted, true, nil
}

// nextStatus returns the status of a policy space at a position in the hierarchy, and the namespaces for which more is
// reserved than they use.
func nextStatus(
	space *v1alpha1.PolicySpace, namespaces []string, observed map[string]quota.Usage, at position,
	counted namespaceCount,
) (status v1alpha1.PolicySpaceStatus, pending []string) {
	status, pending = quota.Settle(space, namespaces, observed)
	status.ObservedGeneration = space.Generation
	status.Namespaces = int32(at.namespaces)
	status.Path = at.path
	var uncounted []string
	if len(status.Hard) < len(quota.Hard(space)) {
		uncounted = uncountedNamespaces(space, namespaces, observed)
	}
	is, reason, message := readiness(space, status, at, uncounted, counted)
	if names := assumedLimits(space, observed); reason == ready && len(names) > 0 {
		message = fmt.Sprintf("the path is known, but the limits of %s have no effect, because Kubernetes counts no "+
			"such resources; all others are enforced", reporting.Shorten(strings.Join(names, ", ")))
	}
	reporting.SetKstatus(&status.Conditions, space.Generation, is, reason, message)
	if space.Spec.Quota == nil {
		apimeta.RemoveStatusCondition(&status.Conditions, v1alpha1.PolicySpaceExceeded)
	} else {
		apimeta.SetStatusCondition(&status.Conditions, exceededCondition(space, status))
	}
	return status, pending
}

// nextCheck returns when a policy space is reconciled again for its usage: 0 if only events require it. remaining is
// how long until reservations expire. A usage quota in which the API server never counts causes no event.
func nextCheck(
	space *v1alpha1.PolicySpace, status v1alpha1.PolicySpaceStatus, remaining time.Duration,
) time.Duration {
	isCounted := len(status.Hard) == len(quota.Hard(space)) && len(status.Uncounted) == 0
	if remaining == 0 && !isCounted {
		return statusDelay
	}
	return remaining
}

// mustWrite reports whether a status is written over the stored one: anything but the reservations differs, or many of
// these are settled.
func mustWrite(stored, status v1alpha1.PolicySpaceStatus) bool {
	settled := len(stored.Reservations) - len(status.Reservations)
	stored.Reservations, status.Reservations = nil, nil
	return settled >= manySettled || !equality.Semantic.DeepEqual(stored, status)
}

// readiness returns whether a policy space has a path, and all its limits are enforced. uncounted are the namespaces in
// which a limited resource has not been counted. A parent may be created later, in the same kubectl apply, so a policy
// space that waits for it has not failed.
func readiness(
	space *v1alpha1.PolicySpace, status v1alpha1.PolicySpaceStatus, at position, uncounted []string,
	counted namespaceCount,
) (is reporting.Kstatus, reason, message string) {
	isEmpty := at.namespaces == 0 && !at.hasChildren
	broken, isBroken := errors.AsType[*hierarchy.BrokenError](at.broken)
	switch {
	case isBroken && broken.Cycle:
		return reporting.Failed, "NoPath", broken.Error()
	case isBroken:
		return reporting.InProgress, "NoPath", broken.Error()
	case counted.webhooks == webhook.Deleted:
		return reporting.Failed, "NotReached", "ValidatingWebhookConfiguration " + v1alpha1.WebhookName +
			" does not exist, so the API server enforces no limits: apply the manifests again"
	case counted.webhooks == webhook.Missing:
		return reporting.InProgress, "NotReached", "ValidatingWebhookConfiguration " + v1alpha1.WebhookName +
			" lacks the webhooks of limits: wait until the operator has written it again"
	case len(status.Uncounted) > 0:
		return reporting.InProgress, "Counting", fmt.Sprintf(
			"the ResourceQuota %s is missing or was changed in namespaces %s: "+
				"requests for limited resources are denied until the operator has repaired it",
			v1alpha1.QuotaName, nameFirst(status.Uncounted))
	case quota.LimitsNamespaces(space) && !counted.isEnforced:
		return reporting.InProgress, "Counting",
			"the API server does not ask the operator about namespaces yet: until it does, their number is not limited"
	case len(status.Hard) < len(quota.Hard(space)):
		return reporting.InProgress, "Counting", fmt.Sprintf(
			"the API server has not counted usage yet in %s (%s): requests for limited resources are denied until it has",
			reporting.Count(len(uncounted), "namespace"), nameFirst(uncounted))
	case isEmpty && space.Labels[v1alpha1.TreeLabel] == space.Name:
		return reporting.Current, "Empty", fmt.Sprintf(
			"the tree %[1]s has no namespaces; if you renamed its root, delete the remaining objects: "+
				"kubectl delete policyspaces,namespacetemplates,clusterroles,clusterrolebindings -l %[2]s=%[1]s",
			space.Name, v1alpha1.TreeLabel)
	}
	return reporting.Current, ready, "the path is known and all limits are enforced"
}

// nameFirst returns the first names of a list, and whether there are more.
func nameFirst(names []string) string {
	if len(names) > maxNamed {
		return strings.Join(names[:maxNamed], ", ") + ", …"
	}
	return strings.Join(names, ", ")
}

// exceededCondition returns whether usage in a policy space exceeds a limit. While usage is not counted everywhere,
// what is counted is a part of it.
func exceededCondition(space *v1alpha1.PolicySpace, status v1alpha1.PolicySpaceStatus) metav1.Condition {
	exceeded := metav1.Condition{
		Type: v1alpha1.PolicySpaceExceeded, ObservedGeneration: space.Generation, Status: metav1.ConditionFalse,
		Reason: "WithinQuota", Message: "usage is within all limits",
	}
	switch over := quota.Excess(space, status); {
	case over == "" && (len(status.Hard) < len(quota.Hard(space)) || len(status.Uncounted) > 0):
		exceeded.Status, exceeded.Reason = metav1.ConditionUnknown, "Counting"
		exceeded.Message = "what is counted so far is within all limits"
	case over != "":
		exceeded.Status, exceeded.Reason, exceeded.Message = metav1.ConditionTrue, "Exceeded", reporting.Shorten(over)
	}
	return exceeded
}
