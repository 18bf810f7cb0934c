package main

import (
	"context"
	"fmt"
	"time"
)

// flood creates many namespaces at once, by turns for the floor and the operator, and counts what it costs.
func (b *bench) flood(ctx context.Context) error {
	var floor, operator cost
	for round := range b.sizes.Rounds {
		b.say("%d namespaces by %d writers for the floor and for the operator, round %d", b.sizes.Flood, b.sizes.Writers, round+1)
		if err := b.countFlood(ctx, floorSide, &floor); err != nil {
			return err
		}
		if err := b.countFlood(ctx, operatorSide, &operator); err != nil {
			return err
		}
	}
	b.say("the floor's requests: %s\nthe operator's: %s", floor.requests, operator.requests)
	compare := func(measure, unit string, of func(cost) float64, goal string) {
		b.table.compare(measure, unit, of(floor), of(operator), goal)
	}
	each := func(d time.Duration) float64 { return milliseconds(d) / float64(b.sizes.Flood*b.sizes.Rounds) }
	per := func(count float64) float64 { return count / float64(b.sizes.Flood*b.sizes.Rounds) }
	compare(fmt.Sprintf("%d namespaces at once: throughput", b.sizes.Flood), "1/s", func(c cost) float64 { return 1000 / each(c.took) }, "at least 0.9x")
	compare("writes for a namespace and its 5 objects", "", func(c cost) float64 { return per(c.requests.writes()) }, "6")
	compare("requests for them, with reads", "", func(c cost) float64 { return per(c.requests.total()) }, "")
	compare("API server's CPU time for them", "ms", func(c cost) float64 { return each(c.apiServer) }, "")
	b.table.add("operator's CPU time for them", "ms", each(operator.operator), "")
	return nil
}

// cost is what the namespaces of a side have cost.
type cost struct {
	took, apiServer, operator time.Duration
	requests                  requests
}

func (b *bench) countFlood(ctx context.Context, of side, total *cost) error {
	before, err := b.settle(ctx)
	if err != nil {
		return err
	}
	operatorBefore, err := b.operator.scrape(ctx)
	if err != nil {
		return err
	}
	took, err := b.many(ctx, of, b.sizes.Flood)
	if err != nil {
		return err
	}
	after, err := b.settle(ctx)
	if err != nil {
		return err
	}
	operatorAfter, err := b.operator.scrape(ctx)
	if err != nil {
		return err
	}
	total.took += took
	total.apiServer += after.cpu - before.cpu
	total.operator += operatorAfter.cpu() - operatorBefore.cpu()
	if total.requests == nil {
		total.requests = requests{}
	}
	for kind, count := range after.requests.since(before.requests).toPopulate() {
		total.requests[kind] += count
	}
	return nil
}
