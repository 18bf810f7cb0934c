package population

import (
	"cmp"
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inforce"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// Fights are what other clients change again and again, by namespace.
type Fights = backoff.Fights[string, populate.Subject]

// postpone returns a plan without the corrections of objects that are fought over, until they are due.
func (r *Namespaces) postpone(plan populate.Plan) populate.Plan {
	now := time.Now()
	return plan.Postpone(func(change populate.Change) bool { return r.wait(plan.Namespace.Name, change, now) > 0 })
}

// wait returns how long the correction of a change waits. One write corrects all labels and annotations of a namespace,
// so a fight over several of them has no more writes than one over a single one.
func (r *Namespaces) wait(namespace string, change populate.Change, now time.Time) time.Duration {
	wait := time.Duration(0)
	for _, part := range change.Parts() {
		wait = max(wait, r.Fights.Wait(namespace, part.Subject(), longestPause(part), now))
	}
	return wait
}

// longestPause returns how long the correction of an object that is fought over waits at most. A user of the namespace
// could begin a fight to keep what the correction takes away.
func longestPause(change populate.Change) time.Duration {
	if change.Protects() {
		return backoff.FirstPause
	}
	return backoff.LastPause
}

// fought records the corrections of a plan, and returns findings about what is fought over. It queues the namespace for
// the time at which the next correction is due or a fight is over.
func (r *Namespaces) fought(ctx context.Context, plan populate.Plan, result populate.Result) []populate.Finding {
	now, namespace := time.Now(), plan.Namespace.Name
	for _, outcome := range result.Outcomes {
		for _, part := range outcome.Corrected() {
			r.Fights.Corrected(namespace, part.Subject(), part.ChangedBy(), now)
		}
	}
	fights := r.Fights.In(namespace, now)
	if len(fights) == 0 {
		return nil
	}
	isFought := func(part populate.Change) bool { return fights[part.Subject()].Rounds > 0 }
	var findings []populate.Finding
	soonest := backoff.FightEnds
	for _, change := range plan.Changes {
		if change.Postponed {
			soonest = min(soonest, r.wait(namespace, change, now))
		}
		for _, part := range change.Parts() {
			if !isFought(part) {
				continue
			}
			fight := fights[part.Subject()]
			rival := r.rivalOf(ctx, namespace, part, fight)
			findings = append(findings, populate.Fought(part, rival, longestPause(part)))
			soonest = min(soonest, fight.Last.Add(backoff.FightEnds).Sub(now))
		}
	}
	slices.SortStableFunc(findings, func(a, b populate.Finding) int {
		return cmp.Compare(a.Object.String(), b.Object.String())
	})
	for _, outcome := range result.Outcomes {
		if slices.ContainsFunc(outcome.Corrected(), isFought) {
			r.Metrics.fight(outcome.ID())
		}
	}
	r.Queue.Enqueue(queue.Changed, soonest, namespace)
	return findings
}

// rivalOf returns the name of the client that changes part of a plan again and again, or "" if it is unknown. The cache
// of namespaces does not have that of a client that sets a label or an annotation: it is read while the correction
// waits.
func (r *Namespaces) rivalOf(
	ctx context.Context, namespace string, part populate.Change, fight backoff.Fight,
) string {
	subject := part.Subject()
	if fight.By != "" || part.Metadata == nil || !part.Postponed {
		return fight.By
	}
	ns := &corev1.Namespace{}
	if r.Live.Get(ctx, client.ObjectKey{Name: namespace}, ns) != nil {
		return ""
	}
	object := &unstructured.Unstructured{}
	object.SetManagedFields(ns.ManagedFields)
	rival := inforce.ManagerOf(object, inforce.Field{"metadata", subject.Value.Field, subject.Value.Key},
		v1alpha1.NamespaceFieldManager)
	r.Fights.Name(namespace, subject, rival)
	return rival
}
