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
