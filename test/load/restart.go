package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// idle counts what is written while nothing happens.
func (b *bench) idle(ctx context.Context) error {
	b.say("idle for %s", b.sizes.Idle)
	before, err := b.settle(ctx)
	if err != nil {
		return err
	}
	if err := pause(ctx, b.sizes.Idle); err != nil {
		return err
	}
	after, err := b.work(ctx)
	if err != nil {
		return err
	}
	made := after.requests.since(before.requests).toPopulate()
	b.say("requests while idle: %s", made)
	b.table.add(fmt.Sprintf("writes in %s of idleness", b.sizes.Idle), "", made.writes(), "0")
	return nil
}

// restart ends the operator while everything is in sync and starts it again.
func (b *bench) restart(ctx context.Context) error {
	list, err := b.client.CoreV1().Namespaces().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	ours := b.made[operatorSide] + b.made[rolloutSide]
	b.say("restart with %d namespaces, %d of them populated by the operator", len(list.Items), ours)
	b.operator.end()
	before, err := b.settle(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if b.operator, err = startOperator(ctx, b.sizes.operator, b.dir, b.fail); err != nil {
		return err
	}
	for ready := false; !ready; {
		if ready, err = b.operator.ready(ctx); err != nil {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	readyAfter := time.Since(start)
	for quiet := false; !quiet; {
		if quiet, err = b.quiet(ctx, len(list.Items)); err != nil {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	quietAfter := time.Since(start)
	after, err := b.settle(ctx)
	if err != nil {
		return err
	}
	made := after.requests.since(before.requests).toPopulate()
	b.say("requests of the restart: %s", made)
	what := fmt.Sprintf("restart, %d namespaces x 5 objects in sync: ", ours)
	b.table.add(what+"writes", "", made.writes(), "0")
	b.table.add(what+"ready after", "s", readyAfter.Seconds(), "seconds")
	b.table.add(what+"all looked at after", "s", quietAfter.Seconds(), "")
	return b.memory(ctx, what+"memory")
}

// quiet tells whether the operator has looked at so many namespaces and has nothing left to do.
func (b *bench) quiet(ctx context.Context, namespaces int) (bool, error) {
	all, err := b.operator.scrape(ctx)
	queue := map[string]string{"name": "namespace"}
	controller := map[string]string{"controller": "namespace"}
	return all.sum("controller_runtime_reconcile_total", controller) >= float64(namespaces) &&
		all.sum("controller_runtime_active_workers", controller) == 0 &&
		all.sum("workqueue_depth", queue) == 0, err
}

// memory adds a line with the operator's memory.
func (b *bench) memory(ctx context.Context, what string) error {
	all, err := b.operator.scrape(ctx)
	b.table.add(what, "MiB", all.sum("process_resident_memory_bytes", nil)/(1<<20), "at most 256")
	return err
}
