package main

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/test/measure"
)

// restarted is what restarts have cost at most.
type restarted struct {
	ready, checked time.Duration
	writes, peak   float64 // the peak in bytes
}

// measureRestart starts the operator with empty caches and little memory while everything is in sync.
func (b *bench) measureRestart(ctx context.Context) error {
	list, err := b.metadata.Resource(measure.Namespaces).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	program, how, remove, err := b.confine()
	if err != nil {
		return err
	}
	defer remove()
	if text := "The operator was restarted in " + how + "."; !slices.Contains(b.report.Conditions, text) {
		b.report.Conditions = append(b.report.Conditions, text)
	}
	var worst restarted
	for range b.options.restarts {
		one, err := b.restart(ctx, program, how, len(list.Items))
		if err != nil {
			return err
		}
		worst = restarted{
			max(worst.ready, one.ready), max(worst.checked, one.checked),
			max(worst.writes, one.writes), max(worst.peak, one.peak),
		}
	}
	b.add(measurement{Name: "restart: until ready", Unit: "s", Growth: linear, Goal: atMost(15)}, worst.ready.Seconds())
	b.add(measurement{Name: "restart: until all namespaces are checked", Unit: "s", Growth: linear},
		worst.checked.Seconds())
	b.add(measurement{Name: "restart: writes, without the leader's Event", Goal: atMost(0)}, worst.writes)
	b.add(measurement{Name: "restart: peak memory", Unit: "MiB", Growth: linear, Goal: atMost(300)},
		worst.peak/mebibyte)
	return b.endConfinement(ctx)
}

// restart stops the operator and starts a program in its place, until it has checked a number of namespaces.
func (b *bench) restart(ctx context.Context, program, how string, namespaces int) (is restarted, err error) {
	b.progress.part("the operator stops", 0)
	if err := b.stopOperator(); err != nil {
		return is, err
	}
	work, err := measure.During(ctx, b.client, func() error {
		start := time.Now()
		b.progress.part("the operator starts in "+how, 0)
		if err := b.startOperator(ctx, program); err != nil {
			return err
		}
		is.ready = time.Since(start)
		b.progress.part("the operator is ready and checks all namespaces", 0)
		for !b.operator.HasReconciled(ctx, namespaces) {
			if !b.operator.Runs() {
				return errors.New("the operator has ended by itself")
			}
			if err := measure.Pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		is.checked = time.Since(start)
		return nil
	})
	if err != nil {
		return is, err
	}
	b.printRequests("restart", work)
	is.writes = operatorWrites(work.Requests) - min(1, work.Requests["POST events"])
	is.peak, err = measure.PeakMemory(b.operator.PID())
	return is, err
}

// endConfinement replaces the operator by one without a limit of its memory.
func (b *bench) endConfinement(ctx context.Context) error {
	if err := b.stopOperator(); err != nil {
		return err
	}
	return b.startOperator(ctx, b.options.operator)
}
