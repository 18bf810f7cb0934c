package policyspace

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
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

// updateStatus writes the status of a policy space if it changes. After a change of the spec it waits some seconds
// until the API server asks about what is restricted, so that one write suffices, unless requests in namespaces wait
// for the write.
func (r *Spaces) updateStatus(ctx context.Context, stored *v1alpha1.PolicySpace) (reconcile.Result, error) {
	space, nextEnd := withoutEnded(stored, r.isEmpty)
	if quota.LimitsNamespaces(space) && !r.totals.census.wait(ctx, space.Status.NamespacesAsOf, 0) {
		return reconcile.Result{RequeueAfter: freshnessPoll}, nil // the census is behind the status
	}
	var nextExpiry time.Duration
	var err error
	if space.Status, nextExpiry, err = r.totals.settle(ctx, space); err != nil {
		return reconcile.Result{}, err
	}
	namespaces, observed, err := r.observe(ctx, space)
	if err != nil {
		return reconcile.Result{}, err
	}
	enforced := r.enforcementOf(ctx, space)
	isQuiet := r.isQuiet(space, namespaces)
	if !isQuiet || !enforced.isAwaited() {
		enforced.invalid, enforced.untried = r.invalidLimits(ctx, space)
	}
	nextPoll := r.nextPoll(space.Name, enforced)
	if isQuiet && enforced.isAwaited() {
		return reconcile.Result{RequeueAfter: nextPoll}, nil
	}
	enforceNamespaces(space, enforced)
	position := r.positionOf(space.Name, len(r.Members.inside(space.Name)))
	status, pending := nextStatus(space, namespaces, observed, position, enforced)
	r.Metrics.setQuota(space, status)
	remaining, err := r.endExpired(ctx, space.Name, status, pending)
	if err != nil {
		return reconcile.Result{}, err
	}
	next := sooner(sooner(nextCheck(space, status, remaining), nextEnd), sooner(nextExpiry, nextPoll))
	if !mustWrite(stored.Status, status) {
		return reconcile.Result{RequeueAfter: next}, nil
	}
	if err := errors.Join(enforced.failure, enforced.untried); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find out whether a policyspace is enforced")
	}
	return r.write(ctx, space, status, next)
}

// write writes the status of a policy space, which is reconciled again at the time next: 0 if only events require it.
// The write fails if admission has reserved usage since the policy space was read.
func (r *Spaces) write(
	ctx context.Context, space *v1alpha1.PolicySpace, status v1alpha1.PolicySpaceStatus, next time.Duration,
) (reconcile.Result, error) {
	changed := space.DeepCopy()
	changed.Status = status
	err := r.Client.Status().Update(ctx, changed)
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: usageDelay}, nil
	case err == nil:
		r.written.Written(changed.Name, changed)
	}
	return reconcile.Result{RequeueAfter: next}, client.IgnoreNotFound(err)
}

// nextStatus returns the status of a policy space at a position in the hierarchy, and the namespaces for which more is
// reserved than they use.
func nextStatus(
	space *v1alpha1.PolicySpace, namespaces []string, observed map[string]quota.Usage, at position,
	enforced enforcement,
) (status v1alpha1.PolicySpaceStatus, pending []string) {
	status, pending = quota.Settle(space, namespaces, observed)
	if enforced.untried == nil { // otherwise, the limits are tried again, as for a first status
		status.ObservedGeneration = space.Generation
	}
	status.Namespaces = int32(at.namespaces)
	status.Path = at.path
	var uncounted []string
	if !containsAll(status.Hard, quota.Objects(space)) {
		uncounted = uncountedNamespaces(space, namespaces, observed)
	}
	is, reason, message := readiness(space, status, at, uncounted, enforced)
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

// readiness returns whether a policy space has a path, and all that it restricts is enforced. uncounted are the
// namespaces in which a limited resource has not been counted. A parent may be created later, in the same kubectl
// apply, so a policy space that waits for it has not failed.
func readiness(
	space *v1alpha1.PolicySpace, status v1alpha1.PolicySpaceStatus, at position, uncounted []string,
	enforced enforcement,
) (is reporting.Kstatus, reason, message string) {
	isEmpty := at.namespaces == 0 && !at.hasChildren
	broken, isBroken := errors.AsType[*hierarchy.BrokenError](at.broken)
	switch {
	case enforced.invalid != "": // the first, because invalidLimits reads it in the next status
		return reporting.Failed, reasonInvalid, enforced.invalid
	case isBroken && broken.Cycle:
		return reporting.Failed, "NoPath", broken.Error()
	case isBroken:
		return reporting.InProgress, "NoPath", broken.Error()
	case enforced.webhooks == webhook.Deleted:
		return reporting.Failed, "NotReached", "ValidatingWebhookConfiguration " + v1alpha1.WebhookName +
			" does not exist, so the API server enforces no limits and no rules for self-service: " +
			"apply the manifests again"
	case enforced.untried != nil:
		return reporting.InProgress, reasonUntried, "it is unknown whether a ResourceQuota can have the limits, " +
			"which the operator tries again: " + enforced.untried.Error()
	case len(status.Uncounted) > 0:
		return reporting.InProgress, "Counting", fmt.Sprintf(
			"the ResourceQuota %s is missing or was changed in namespaces %s: "+
				"requests for limited resources are denied until the operator has repaired it",
			v1alpha1.QuotaName, nameFirst(status.Uncounted))
	case len(uncounted) > 0:
		return reporting.InProgress, "Counting", fmt.Sprintf(
			"the API server has not counted usage yet in %s (%s): requests for limited resources are denied until it has",
			reporting.Count(len(uncounted), "namespace"), nameFirst(uncounted))
	case enforced.failure != nil:
		return reporting.InProgress, "NotReached",
			"limits and rules for self-service are perhaps not enforced: " + enforced.failure.Error()
	case enforced.webhooks == webhook.Missing:
		return reporting.InProgress, "NotReached", "ValidatingWebhookConfiguration " + v1alpha1.WebhookName + " lacks " +
			"webhooks of limits or of rules for self-service, or the API server does not use them yet: " +
			"wait until the operator has written them"
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
