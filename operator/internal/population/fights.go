package population

import (
	"cmp"
	"slices"
	"time"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/backoff"
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
func (r *Namespaces) fought(plan populate.Plan, result populate.Result) []populate.Finding {
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
	r.Queue.AddChangedLater(namespace, soonest)
	return findings
}
