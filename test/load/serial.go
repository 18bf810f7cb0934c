package main

import (
	"context"
	"time"
)

// serial creates namespaces one by one, by turns for the floor and the operator.
func (b *bench) serial(ctx context.Context) (latencies, error) {
	b.say("%d namespaces one by one", b.sizes.Serial)
	return b.byTurns(ctx, func(done int) bool { return done == b.sizes.Serial })
}

// latencies are how long namespaces took to be populated.
type latencies map[side][]time.Duration

func (b *bench) byTurns(ctx context.Context, enough func(done int) bool) (latencies, error) {
	all := latencies{}
	for done := 0; !enough(done); done++ {
		for _, of := range []side{floorSide, operatorSide} {
			took, err := b.one(ctx, of)
			if err != nil {
				return nil, err
			}
			all[of] = append(all[of], took)
		}
	}
	return all, nil
}
