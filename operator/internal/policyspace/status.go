package policyspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
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
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/quota"
)

// keepStatus writes what is new, on condition that nothing was booked meanwhile.
func (r *Spaces) keepStatus(ctx context.Context, stored *v1alpha1.PolicySpace) (reconcile.Result, error) {
	space, sharing := withoutEnded(stored)
	namespaces, observed, err := r.observe(ctx, space)
	if err != nil {
		return reconcile.Result{}, err
	}
	inside, err := r.inside(ctx, space.Name)
	if err != nil {
		return reconcile.Result{}, err
	}
	status, open := quota.Settle(space, namespaces, observed)
	status.ObservedGeneration = space.Generation
	status.Namespaces = int32(len(inside))
	r.mu.Lock()
	lineage, broken := r.forest.Lineage(space.Name)
	isEmpty := len(inside) == 0 && len(r.forest.Children(space.Name)) == 0
	r.mu.Unlock()
	status.Path = hierarchy.Path(lineage)
	setReady(space, &status, broken, uncounted(space, namespaces, observed), isEmpty)
	setExceeded(space, &status)
	r.Metrics.quota(space.Name, quota.Hard(space), status.Used)
	wait, err := r.letGo(ctx, space, status, open)
	if err != nil {
		return reconcile.Result{}, err
	}
	if (len(status.Hard) < len(quota.Hard(space)) || len(status.Uncounted) > 0) && wait == 0 {
		wait = statusDelay // what is never counted, nothing tells of
	}
	if sharing > 0 && (wait == 0 || sharing < wait) {
		wait = sharing
	}
	if settled := len(space.Status.Bookings) - len(status.Bookings); sameStatus(stored.Status, status) &&
		settled < manyBookings {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	changed := space.DeepCopy()
	changed.Status = status
	err = r.Client.Status().Update(ctx, changed)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: countDelay}, nil // something was booked meanwhile
	}
	return reconcile.Result{RequeueAfter: wait}, client.IgnoreNotFound(err)
}

// setReady says whether a policyspace has its place, and its limits are in force.
func setReady(
	space *v1alpha1.PolicySpace, status *v1alpha1.PolicySpaceStatus, broken error, uncounted []string, isEmpty bool,
) {
	ready := metav1.Condition{
		Type: v1alpha1.PolicySpaceReady, ObservedGeneration: space.Generation, Status: metav1.ConditionTrue,
		Reason: "Ready", Message: "it is in the hierarchy",
	}
	switch {
	case broken != nil:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, "NoPath", broken.Error()
	case len(status.Uncounted) > 0:
		ready.Status, ready.Reason = metav1.ConditionFalse, "Counting"
		ready.Message = fmt.Sprintf("the ResourceQuota %s is missing or was changed in some namespaces (%s): requests that the quota limits are denied until it is repaired",
			v1alpha1.QuotaName, strings.Join(status.Uncounted[:min(len(status.Uncounted), 3)], ", "))
	case len(status.Hard) < len(quota.Hard(space)):
		ready.Status, ready.Reason = metav1.ConditionFalse, "Counting"
		ready.Message = fmt.Sprintf("what is used is not counted yet in %d namespaces (%s): nothing that the quota limits is let in until it is",
			len(uncounted), strings.Join(uncounted[:min(len(uncounted), 3)], ", "))
	case isEmpty && space.Labels[v1alpha1.TreeLabel] == space.Name:
		ready.Reason = "Empty"
		ready.Message = fmt.Sprintf("the tree %[1]s has no namespaces: if its root was renamed, delete what is left of it: "+
			"kubectl delete policyspaces,namespacetemplates,clusterroles,clusterrolebindings -l %[2]s=%[1]s",
			space.Name, v1alpha1.TreeLabel)
	}
	apimeta.SetStatusCondition(&status.Conditions, ready)
}

func setExceeded(space *v1alpha1.PolicySpace, status *v1alpha1.PolicySpaceStatus) {
	if space.Spec.Quota == nil {
		apimeta.RemoveStatusCondition(&status.Conditions, v1alpha1.PolicySpaceExceeded)
		return
	}
	exceeded := metav1.Condition{
		Type: v1alpha1.PolicySpaceExceeded, ObservedGeneration: space.Generation, Status: metav1.ConditionFalse,
		Reason: "WithinQuota", Message: "no limit is exceeded",
	}
	if over := quota.Over(space, *status); over != "" {
		exceeded.Status, exceeded.Reason, exceeded.Message = metav1.ConditionTrue, "Exceeded", over
	}
	apimeta.SetStatusCondition(&status.Conditions, exceeded)
}

// sameStatus does not look at bookings: they may stay a while when they are settled.
func sameStatus(a, b v1alpha1.PolicySpaceStatus) bool {
	a.Bookings, b.Bookings = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

// isFresh tells whether the cache knows of all that was counted when it is first asked. Another leader may have seen
// more before, and have settled what it saw: to believe less would be to let in too much.
func (r *Spaces) isFresh(ctx context.Context) (bool, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fresh {
		return true, nil
	}
	list := &corev1.ResourceQuotaList{}
	stored, err := leadership.List(ctx, r.Client, r.Live, list,
		client.MatchingFields{metav1.ObjectNameField: v1alpha1.QuotaName})
	if err != nil {
		return false, err
	}
	if missing, err := stored.Missing(ctx, r.Client, list); err != nil || len(missing) > 0 {
		return false, err
	}
	r.fresh = true
	if r.since.IsZero() {
		r.since = time.Now()
	}
	return true, nil
}

// observe returns the namespaces that count in a policyspace, and what is counted in them. One that is being deleted
// counts as long as it is there. What is used is unknown where the ResourceQuota is missing, was changed or is not
// counted yet, but for namespaces that are so new that nothing was counted in them before.
func (r *Spaces) observe(
	ctx context.Context, space *v1alpha1.PolicySpace,
) ([]string, map[string]quota.Observed, error) {
	members, err := r.members(ctx, space)
	if err != nil {
		return nil, nil, err
	}
	observed := map[string]quota.Observed{}
	var names []string
	for _, ns := range members {
		counter := &corev1.ResourceQuota{}
		err := r.Client.Get(ctx, client.ObjectKey{Namespace: ns.Name, Name: v1alpha1.QuotaName}, counter,
			client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, nil, err
		}
		if err != nil && ns.DeletionTimestamp != nil {
			continue
		}
		used := CountedUsage(counter)
		isCounted := countsAll(used, space)
		if isCounted {
			r.count(space, ns)
		}
		observed[ns.Name] = quota.Observed{
			Used: used, ResourceVersion: counter.ResourceVersion, Unknown: !isCounted && ns.DeletionTimestamp == nil &&
				!r.isNew(space, ns),
		}
		names = append(names, ns.Name)
	}
	return names, observed, nil
}

// countsAll reports whether the usage of all that a policyspace enforces is among what is used.
func countsAll(used corev1.ResourceList, space *v1alpha1.PolicySpace) bool {
	for name := range quota.Hard(space) {
		_, enforced := space.Status.Hard[name]
		if _, counted := used[name]; enforced && !counted {
			return false
		}
	}
	return true
}

// young is how old a namespace is at most while it is taken for one in which nothing was counted yet.
const young = 10 * time.Second

// count remembers that what a young namespace uses is counted.
func (r *Spaces) count(space *v1alpha1.PolicySpace, ns *corev1.Namespace) {
	if time.Since(ns.CreationTimestamp.Time) > young || len(space.Status.Hard) == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := inSpace{space.Name, ns.UID}
	if _, known := r.counted[key]; !known {
		maps.DeleteFunc(r.counted, func(_ inSpace, created time.Time) bool { return time.Since(created) > young })
		r.counted[key] = ns.CreationTimestamp.Time
	}
}

// isNew reports whether a namespace, in which nothing is counted, is so new that nothing was. What was counted before
// this process led is not known, so only namespaces that were created since then are new.
func (r *Spaces) isNew(space *v1alpha1.PolicySpace, ns *corev1.Namespace) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, counted := r.counted[inSpace{space.Name, ns.UID}]
	return !counted && ns.CreationTimestamp.After(r.since) &&
		(initialize.Initializing(ns) || time.Since(ns.CreationTimestamp.Time) <= young)
}

// uncounted returns the namespaces of which it is not known what is used.
func uncounted(space *v1alpha1.PolicySpace, namespaces []string, observed map[string]quota.Observed) []string {
	var missing []string
	for _, ns := range namespaces {
		for name := range quota.Hard(space) {
			if _, counted := observed[ns].Used[name]; !counted {
				missing = append(missing, ns)
				break
			}
		}
	}
	return missing
}

// letGo has bookings forgotten that were not written down in time: the ResourceQuota that they went on from is written
// anew, so that they can't be any more. It returns when to look again.
func (r *Spaces) letGo(
	ctx context.Context, space *v1alpha1.PolicySpace, status v1alpha1.PolicySpaceStatus, open []string,
) (time.Duration, error) {
	var now []openReservation
	for _, one := range status.Bookings {
		if slices.Contains(open, one.Namespace) {
			now = append(now, openReservation{space.Name, one.Namespace, one.Since})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for known := range r.open {
		if known.space == space.Name && !slices.Contains(now, known) {
			delete(r.open, known)
		}
	}
	var wait time.Duration
	for _, one := range now {
		since, known := r.open[one]
		if !known {
			r.open[one] = time.Now()
			since = time.Now()
		}
		if left := bookingTime - time.Since(since); left > 0 {
			wait = max(wait, left)
			continue
		}
		if _, err := RenewCounter(ctx, r.Client, one.namespace); client.IgnoreNotFound(err) != nil {
			return 0, err
		}
		delete(r.open, one)
	}
	return wait, nil
}
