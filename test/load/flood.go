package main

import (
	"context"
	"time"
)

// flood creates many namespaces at once, by turns for the floor and the operator, and counts the requests.
func (b *bench) flood(ctx context.Context) error {
	took := map[side]time.Duration{}
	made := map[side]requests{floorSide: {}, operatorSide: {}}
	before, err := b.settle(ctx)
	if err != nil {
		return err
	}
	for round := range b.sizes.Rounds {
		for _, of := range []side{floorSide, operatorSide} {
			b.say("%d namespaces by %d writers for the %s, round %d", b.sizes.Flood, b.sizes.Writers, of, round+1)
			elapsed, err := b.many(ctx, of, b.sizes.Flood)
			if err != nil {
				return err
			}
			took[of] += elapsed
			after, err := b.settle(ctx)
			if err != nil {
				return err
			}
			for kind, count := range after.since(before).toPopulate() {
				made[of][kind] += count
			}
			before = after
		}
	}
	count := float64(b.sizes.Flood * b.sizes.Rounds)
	b.table.compare("namespaces at once: throughput", "1/s", count/took[floorSide].Seconds(), count/took[operatorSide].Seconds(), "at least 0.9x")
	b.table.compare("writes per namespace of 5 objects", "", made[floorSide].writes()/count, made[operatorSide].writes()/count, "6")
	b.table.compare("requests per namespace, reads included", "", made[floorSide].total()/count, made[operatorSide].total()/count, "")
	for _, of := range []side{floorSide, operatorSide} {
		b.say("requests for the %s's %.0f namespaces: %s", of, count, made[of])
	}
	return nil
}
