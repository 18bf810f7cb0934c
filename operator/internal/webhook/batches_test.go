package webhook

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Requests that come during a write share the next one, and each gets its own error.
func TestBatches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		odd, all := errors.New("odd"), errors.New("full")
		var written [][]int
		b := Batches[int]{Timeout: time.Second, Write: func(ctx context.Context, added []int) ([]error, error) {
			written = append(written, added)
			if added[0] == 0 {
				<-ctx.Done() // takes as long as it may
				return nil, all
			}
			errs := make([]error, len(added))
			for i := range added {
				if added[i]%2 == 1 {
					errs[i] = odd
				}
			}
			return errs, nil
		}}
		var done sync.WaitGroup
		errs := make([]error, 5)
		for i := range errs {
			done.Go(func() { errs[i] = b.Do(t.Context(), i) })
			synctest.Wait()
		}
		done.Wait()
		require.Equal(t, [][]int{{0}, {1, 2, 3, 4}}, written)
		require.Equal(t, []error{all, odd, nil, odd, nil}, errs)

		// A request that ends does not end the write, which others may share.
		ended, end := context.WithCancel(t.Context())
		end()
		require.ErrorIs(t, b.Do(ended, 0), context.Canceled)
		time.Sleep(2 * b.Timeout)
		synctest.Wait()
		require.Equal(t, []int{0}, written[2])
	})
}
