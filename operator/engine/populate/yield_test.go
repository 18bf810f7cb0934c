package populate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBulkWritesWaitForUrgentWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yield := NewYield()
		waited := func() time.Duration {
			begin := time.Now()
			yield.Wait(t.Context())
			return time.Since(begin)
		}
		require.Zero(t, waited(), "no urgent work")

		first, second := yield.Urgent(), yield.Urgent()
		time.AfterFunc(maxWait/4, first)
		time.AfterFunc(maxWait/2, second)
		require.Equal(t, maxWait/2, waited(), "until all urgent work is done")
		require.Zero(t, waited())

		third := yield.Urgent()
		require.Equal(t, maxWait, waited(), "no longer than maxWait")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		yield.Wait(ctx)
		require.Zero(t, time.Since(begin))
		third()
		require.Zero(t, waited())
	})
}

// Few bulk writes are in flight at a time. One that a webhook delays does not count for long, so that the others go on.
func TestFewBulkWritesAreSentAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yield := NewYield()
		yield.Urgent()()
		begin, sent := time.Now(), make(chan time.Duration, maxQuick+2)
		answers := make([]func(), 0, maxQuick)
		for range maxQuick {
			answers = append(answers, yield.Bulk(t.Context()))
		}
		require.Zero(t, time.Since(begin))
		for range 2 {
			go func() {
				yield.Bulk(t.Context())
				sent <- time.Since(begin)
			}()
		}
		time.AfterFunc(quick/2, answers[0])
		require.Equal(t, quick/2, <-sent, "after an answer")
		require.Equal(t, quick, <-sent, "after the time of a quick write")
		for _, answered := range answers {
			answered() // late, or again
		}

		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		yield.Bulk(ctx)() // it was not sent, so it is not counted
		for range maxQuick {
			defer yield.Bulk(t.Context())()
		}
		require.Equal(t, quick+quick, time.Since(begin), "after both of the second pair, which have no answer")
	})
}

// A rollout that no user waits behind may use an API server with more processors.
func TestMoreBulkWritesAreSentLongAfterUrgentWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yield := NewYield()
		sent := func() (n int) {
			ctx, cancel := context.WithTimeout(t.Context(), quick/2)
			defer cancel()
			for ; ctx.Err() == nil; n++ {
				defer yield.Bulk(ctx)()
			}
			return n - 1 // the last one was not sent
		}
		require.Equal(t, maxCalm, sent())
		yield.Urgent()()
		require.Equal(t, maxQuick, sent())
		time.Sleep(calm)
		require.Equal(t, maxCalm, sent())
	})
}
