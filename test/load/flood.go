package main

import (
	"context"
	"fmt"
	"time"
)

// flood creates many namespaces at once, alternating between floor and operator, and measures the cost.
func (b *bench) flood(ctx context.Context) error {
	var floor, operator cost
	for round := range b.sizes.Rounds {
		b.printProgress("%d namespaces at once for the floor, then for the operator, round %d", b.sizes.Flood, round+1)
		if err := b.floodOnce(ctx, floorSide, &floor); err != nil {
			return err
		}
		if err := b.floodOnce(ctx, operatorSide, &operator); err != nil {
			return err
		}
	}
	b.printProgress("requests of the floor: %v\nand of the operator: %v", floor.requests.ofBothSides(),
		operator.requests.ofBothSides())
	count := float64(b.sizes.Flood * b.sizes.Rounds)
	compare := func(measure, unit string, of func(cost) float64, goal string) {
		b.table.compare(measure, unit, of(floor), of(operator), goal)
	}
	compare(fmt.Sprintf("%d namespaces at once: per second", b.sizes.Flood), "1/s",
		func(c cost) float64 { return count / c.took.Seconds() }, "at least 0.9x")
	compare("writes for a namespace and 5 objects", "",
		func(c cost) float64 { return c.requests.ofBothSides().writes() / count }, "6")
	compare("reads for them", "", func(c cost) float64 { return c.requests.ofBothSides().reads() / count }, "")
	compare("API server's CPU time for them", "ms", func(c cost) float64 { return milliseconds(c.cpu) / count }, "")
	b.table.add("operator's CPU time for them", "ms", milliseconds(operator.operator)/count, "")
	return nil
}

// cost is the total cost of all namespaces of a side.
type cost struct {
	work
	took, operator time.Duration
}

func (b *bench) floodOnce(ctx context.Context, of side, total *cost) error {
	before, err := b.operator.metrics(ctx)
	if err != nil {
		return err
	}
	done, err := b.during(ctx, func() error {
		took, err := b.createConcurrently(ctx, of, b.sizes.Flood, b.sizes.Writers)
		total.took += took
		return err
	})
	if err != nil {
		return err
	}
	after, err := b.operator.metrics(ctx)
	total.work = total.plus(done)
	total.operator += after.cpu() - before.cpu()
	return err
}
