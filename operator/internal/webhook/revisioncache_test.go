package webhook

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

type number string

func (n number) Revision() string { return string(n) }

// A user who creates and deletes rules all the time has many requests need the rules of the API server. All that come
// during a read share the next one, which is not older than any of them.
func TestRequestsShareReadsFromTheAPIServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		live, ready := number("0"), make(chan struct{})
		reads := 0
		c := NewRevisionCache(nil, nil,
			func(ctx context.Context, _ client.Reader, options ...client.ListOption) (number, error) {
				if len(options) > 0 {
					return "cached", nil
				}
				reads++
				read := live
				select {
				case <-ready:
					return read, nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})
		var done sync.WaitGroup
		var values [20]number
		for i := range values {
			done.Go(func() {
				value, err := c.At(t.Context(), "later")
				require.NoError(t, err)
				values[i] = value
			})
			synctest.Wait()
			if i == 0 {
				live = "1"
			}
		}
		gone, leave := context.WithCancel(t.Context())
		leave()
		_, err := c.Live(gone)
		require.ErrorIs(t, err, context.Canceled)
		close(ready)
		done.Wait()
		require.Equal(t, 2, reads)
		require.Equal(t, number("0"), values[0])
		for _, value := range values[1:] {
			require.Equal(t, number("1"), value)
		}
	})
}
