package main

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/test/measure"
)

// measureRestart starts the operator with empty caches and little memory while everything is in sync.
func (b *bench) measureRestart(ctx context.Context) error {
	list, err := b.metadata.Resource(measure.Namespaces).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	b.progress.part("the operator stops", 0)
	if err := b.stopOperator(); err != nil {
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
	var ready, all time.Duration
	work, err := measure.During(ctx, b.client, func() error {
		start := time.Now()
		b.progress.part("the operator starts in "+how, 0)
		if err := b.startOperator(ctx, program); err != nil {
			return err
		}
		ready = time.Since(start)
		b.progress.part("the operator is ready and checks all namespaces", 0)
		for !b.hasReconciled(ctx, len(list.Items)) {
			if !b.operator.Runs() {
				return errors.New("the operator has ended by itself")
			}
			if err := measure.Pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
		}
		all = time.Since(start)
		return nil
	})
	if err != nil {
		return err
	}
	b.printRequests("restart", work)
	b.add(measurement{Name: "restart: until ready", Unit: "s", Growth: linear, Goal: atMost(15)}, ready.Seconds())
	b.add(measurement{Name: "restart: until all namespaces are checked", Unit: "s", Growth: linear}, all.Seconds())
	b.add(measurement{Name: "restart: writes, without the leader's Event", Goal: atMost(0)},
		operatorWrites(work.Requests)-min(1, work.Requests["POST events"]))
	peak, err := peakMemory(b.operator.PID())
	b.add(measurement{Name: "restart: peak memory", Unit: "MiB", Growth: linear, Goal: atMost(300)}, peak/mebibyte)
	return errors.Join(err, b.endConfinement(ctx))
}

// endConfinement replaces the operator by one without a limit of its memory.
func (b *bench) endConfinement(ctx context.Context) error {
	if err := b.stopOperator(); err != nil {
		return err
	}
	return b.startOperator(ctx, b.options.operator)
}
