package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/test/measure"
)

// idle counts the writes while nothing happens.
func (b *bench) idle(ctx context.Context) error {
	b.printProgress("idle for %s", b.sizes.idle)
	done, err := measure.During(ctx, b.client, func() error { return measure.Pause(ctx, b.sizes.idle) })
	b.table.add(fmt.Sprintf("writes in %s of idleness", b.sizes.idle), "", ofBothSides(done.Requests).Writes(), "0")
	return err
}

// restart stops the operator while everything is in sync, and starts it again.
func (b *bench) restart(ctx context.Context) error {
	list, err := b.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	populated := b.made[operatorSide] + b.made[rolloutSide]
	b.printProgress("restart with %d namespaces, of which the operator has populated %d", len(list.Items), populated)
	if err := b.stopOperator(); err != nil {
		return err
	}
	var took time.Duration
	done, err := measure.During(ctx, b.client, func() error {
		start := time.Now()
		defer func() { took = time.Since(start) }()
		if err := b.startOperator(ctx); err != nil {
			return err
		}
		for !b.operator.HasReconciled(ctx, len(list.Items)) {
			if err := measure.Pause(ctx, 10*time.Millisecond); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	made := ofBothSides(done.Requests)
	b.printProgress("requests of the restart: %v", made)
	what := fmt.Sprintf("restart, %d x 5 objects in sync: ", populated)
	b.table.add(what+"writes", "", made.Writes(), "0, but the leader's Event")
	b.table.add(what+"until all was reconciled", "s", took.Seconds(), "seconds")
	return b.memory(ctx, what+"memory")
}

// memory adds a line with the operator's resident memory.
func (b *bench) memory(ctx context.Context, what string) error {
	all, err := b.operator.AllMetrics(ctx)
	b.table.add(what, "MiB", all.Sum("process_resident_memory_bytes")/(1<<20), "at most 256")
	return err
}
