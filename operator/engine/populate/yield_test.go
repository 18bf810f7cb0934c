package populate

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBulkWritesGiveWayToUrgentWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		yield := NewYield()
		waited := func() time.Duration {
			begin := time.Now()
			yield.Wait(t.Context())
			return time.Since(begin)
		}
		require.Zero(t, waited(), "nothing is under way")

		first, second := yield.Urgent(), yield.Urgent()
		time.AfterFunc(patience/4, first)
		time.AfterFunc(patience/2, second)
		require.Equal(t, patience/2, waited(), "until all of it is done")
		require.Zero(t, waited())

		third := yield.Urgent()
		require.Equal(t, patience, waited(), "but not for ever")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		begin := time.Now()
		yield.Wait(ctx)
		require.Zero(t, time.Since(begin))
		third()
		require.Zero(t, waited())
	})
}
