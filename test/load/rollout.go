package main

import (
	"context"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/measure"
)

// rollout creates namespaces one by one while a changed template is rolled out to many others.
func (b *bench) rollout(ctx context.Context) (latencies, error) {
	b.printProgress("%d namespaces to roll out to", b.sizes.rollout)
	if _, err := b.createConcurrently(ctx, rolloutSide, b.sizes.rollout, b.sizes.writers); err != nil {
		return nil, err
	}
	all := latencies{}
	var took time.Duration
	for round := range b.sizes.rounds {
		if _, err := measure.Settle(ctx, b.client); err != nil {
			return nil, err
		}
		b.printProgress("rollout %d", round+1)
		stage := string(rune('b' + round))
		over, err := b.watchRollout(ctx, stage)
		if err != nil {
			return nil, err
		}
		if err := b.applyTemplate(ctx, rolloutSide, stage); err != nil {
			return nil, err
		}
		start := time.Now()
		some, err := b.createAlternately(ctx, func(int) bool { return over.Load() != nil })
		if err != nil {
			return nil, err
		}
		for of, latencies := range some {
			all[of] = append(all[of], latencies...)
		}
		took += over.Load().Sub(start)
	}
	b.table.add("namespaces that a rollout reaches", "1/s", float64(b.sizes.rollout*b.sizes.rounds)/took.Seconds(), "")
	return all, nil
}

// watchRollout returns a channel that receives the time at which the last namespace has the change.
func (b *bench) watchRollout(ctx context.Context, stage string) (*atomic.Pointer[time.Time], error) {
	selector := stageLabel + "=" + stage + "," + v1alpha1.TemplateNameLabel + "=" + templateName(rolloutSide)
	over := &atomic.Pointer[time.Time]{}
	left := b.made[rolloutSide]
	policies := b.client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll)
	return over, b.follow(ctx, selector, policies.Watch, func(event watch.Event) {
		if event.Type == watch.Added {
			left--
		}
		if left == 0 && over.Load() == nil {
			over.Store(new(time.Now()))
		}
	})
}
