package population

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inforce"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/backoff"
	"nstpl.dev/nstpl/operator/internal/queue"
)

// Fights are the objects, by namespace, that other clients change again and again.
type Fights = backoff.Fights[string, populate.ObjectID]

// postpone returns a plan without the corrections of objects that are fought over, until they are due.
func (r *Namespaces) postpone(plan populate.Plan) populate.Plan {
	now := time.Now()
	return plan.Postpone(func(change populate.Change) bool {
		return r.Fights.Wait(plan.Namespace.Name, change.ID(), longestPause(change), now) > 0
	})
}

// longestPause returns how long the correction of an object that is fought over waits at most. A user of the namespace
// could begin a fight to keep what the correction takes away.
func longestPause(change populate.Change) time.Duration {
	if change.Protects() {
		return backoff.FirstPause
	}
	return backoff.LastPause
}

// fought records the corrections of a plan, and returns findings about the objects that are fought over. It queues the
// namespace for the time at which the next correction is due or a fight is over.
func (r *Namespaces) fought(ctx context.Context, plan populate.Plan, result populate.Result) []populate.Finding {
	now, namespace := time.Now(), plan.Namespace.Name
	for _, outcome := range result.Outcomes {
		if outcome.Corrected() {
			r.Fights.Corrected(namespace, outcome.ID(), outcome.ChangedBy(), now)
		}
	}
	fights := r.Fights.In(namespace, now)
	if len(fights) == 0 {
		return nil
	}
	var findings []populate.Finding
	soonest := backoff.FightEnds
	for _, change := range plan.Changes {
		fight, isFought := fights[change.ID()]
		if !isFought {
			continue
		}
		if key, isPostponed := change.PostponedValue(); isPostponed && fight.By == "" {
			fight.By = r.ownerOf(ctx, namespace, key)
			r.Fights.Name(namespace, change.ID(), fight.By)
		}
		longest := longestPause(change)
		findings = append(findings, populate.Fought(change, fight.By, longest))
		if wait := r.Fights.Wait(namespace, change.ID(), longest, now); change.Postponed {
			soonest = min(soonest, wait)
		}
		soonest = min(soonest, fight.Last.Add(backoff.FightEnds).Sub(now))
	}
	slices.SortFunc(findings, func(a, b populate.Finding) int {
		return cmp.Compare(a.Object.String(), b.Object.String())
	})
	for _, outcome := range result.Outcomes {
		if _, isFought := fights[outcome.ID()]; isFought && outcome.Corrected() {
			r.Metrics.fight(outcome.ID())
		}
	}
	r.Queue.Enqueue(queue.Changed, soonest, namespace)
	return findings
}

// ownerOf returns the name of the client that set a label or an annotation of a namespace, with that, or "" if it is
// unknown. The cache of namespaces does not have it.
func (r *Namespaces) ownerOf(ctx context.Context, namespace string, key render.MetadataKey) string {
	ns := &corev1.Namespace{}
	if r.Live.Get(ctx, client.ObjectKey{Name: namespace}, ns) != nil {
		return ""
	}
	object := &unstructured.Unstructured{}
	object.SetManagedFields(ns.ManagedFields)
	owner := inforce.ManagerOf(object, inforce.Field{"metadata", key.Field, key.Key}, v1alpha1.NamespaceFieldManager)
	return fmt.Sprintf("%s (%s)", cmp.Or(owner, "another client"), key)
}
