package main

import (
	"context"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// rollout creates namespaces one by one, as serial does, while a template's change is on its way to many others.
func (b *bench) rollout(ctx context.Context) (latencies, error) {
	b.say("%d namespaces to roll out to", b.sizes.Rollout)
	if _, err := b.many(ctx, rolloutSide, b.sizes.Rollout); err != nil {
		return nil, err
	}
	all := latencies{}
	var took time.Duration
	for round := range b.sizes.Rounds {
		if _, err := b.settle(ctx); err != nil {
			return nil, err
		}
		b.say("rollout %d", round+1)
		start := time.Now()
		over, err := b.changeTemplate(ctx, []string{"b", "c"}[round%2])
		if err != nil {
			return nil, err
		}
		some, err := b.byTurns(ctx, func(int) bool { return over.Load() != nil })
		if err != nil {
			return nil, err
		}
		for of, latencies := range some {
			all[of] = append(all[of], latencies...)
		}
		took += over.Load().Sub(start)
	}
	b.table.add("namespaces reached by a rollout, per second", "1/s", float64(b.sizes.Rollout*b.sizes.Rounds)/took.Seconds(), "")
	return all, nil
}

// changeTemplate changes all objects of the template. What it returns holds the time when they all were seen.
func (b *bench) changeTemplate(ctx context.Context, stage string) (*atomic.Pointer[time.Time], error) {
	selector := stageLabel + "=" + stage + "," + v1alpha1.TemplateNameLabel + "=load-" + string(rolloutSide)
	changed, err := b.watch(ctx, selector, b.client.NetworkingV1().NetworkPolicies(metav1.NamespaceAll).Watch)
	if err != nil {
		return nil, err
	}
	template, err := newTemplate(rolloutSide, stage)
	if err != nil {
		return nil, err
	}
	found := &v1alpha1.NamespaceTemplate{}
	if err := b.templates.Get(ctx, client.ObjectKeyFromObject(template), found); err != nil {
		return nil, err
	}
	base := found.DeepCopy()
	found.Spec.Templates = template.Spec.Templates
	if err := b.templates.Patch(ctx, found, client.MergeFrom(base)); err != nil {
		return nil, err
	}
	over := &atomic.Pointer[time.Time]{}
	left := b.made[rolloutSide]
	go func() {
		b.fail(follow(ctx, changed, func(event watch.Event) {
			if event.Type != watch.Added {
				return
			}
			if left--; left == 0 {
				over.Store(new(time.Now()))
			}
		}))
	}()
	return over, nil
}
