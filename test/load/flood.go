package main

import (
	"context"
	"fmt"
	"time"

	"nstpl.dev/nstpl/test/measure"
)

// flood creates many namespaces at once, alternating between floor and operator, and measures the cost.
func (b *bench) flood(ctx context.Context) error {
	var floor, operator cost
	for round := range b.sizes.rounds {
		b.printProgress("%d namespaces at once for the floor, then for the operator, round %d", b.sizes.flood, round+1)
		if err := b.floodOnce(ctx, floorSide, &floor); err != nil {
			return err
		}
		if err := b.floodOnce(ctx, operatorSide, &operator); err != nil {
			return err
		}
	}
	b.printProgress("requests of the floor: %v\nand of the operator: %v", ofBothSides(floor.Requests),
		ofBothSides(operator.Requests))
	count := float64(b.sizes.flood * b.sizes.rounds)
	compare := func(what, unit string, of func(cost) float64, goal string) {
		b.table.compare(what, unit, of(floor), of(operator), goal)
	}
	compare(fmt.Sprintf("%d namespaces at once: per second", b.sizes.flood), "1/s",
		func(c cost) float64 { return count / c.took.Seconds() }, "at least 0.9x")
	compare("writes for a namespace and 5 objects", "",
		func(c cost) float64 { return ofBothSides(c.Requests).Writes() / count }, "6")
	compare("reads for them", "", func(c cost) float64 { return ofBothSides(c.Requests).Reads() / count }, "")
	compare("API server's CPU time for them", "ms", func(c cost) float64 {
		return measure.Milliseconds(c.CPU) / count
	}, "")
	b.table.add("operator's CPU time for them", "ms", measure.Milliseconds(operator.operator)/count, "")
	return nil
}

// cost is the total cost of all namespaces of a side.
type cost struct {
	measure.Work
	took, operator time.Duration
}

func (b *bench) floodOnce(ctx context.Context, of side, total *cost) error {
	before, err := b.operator.AllMetrics(ctx)
	if err != nil {
		return err
	}
	done, err := measure.During(ctx, b.client, func() error {
		took, err := b.createConcurrently(ctx, of, b.sizes.flood, b.sizes.writers)
		total.took += took
		return err
	})
	if err != nil {
		return err
	}
	after, err := b.operator.AllMetrics(ctx)
	total.Work = total.Plus(done)
	total.operator += after.CPU() - before.CPU()
	return err
}
