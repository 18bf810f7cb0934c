package webhook

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/attributes"
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

// created is a value with the number of objects that were created before.
type created struct {
	number
	objects int
}

// A user creates rules all the time, so the cache is always ahead of the revision in the URL. How often the rules are
// read depends on the time and on the writes of the webhooks, and not on how many requests of others there are.
func TestReadsAreBoundedWhileObjectsAreCreated(t *testing.T) {
	t.Parallel()
	const lasts, latency = 5 * time.Second, 20 * time.Millisecond
	for _, perMillisecond := range []int{1, 10} {
		synctest.Test(t, func(t *testing.T) {
			var now, url created
			reads, writes := 0, 0
			c := NewRevisionCache(nil, nil,
				func(_ context.Context, _ client.Reader, options ...client.ListOption) (created, error) {
					read := now
					if len(options) == 0 {
						reads++
						time.Sleep(latency)
					}
					return read, nil
				})
			var sum attributes.Sum
			var done sync.WaitGroup
			for began := time.Now(); time.Since(began) < lasts; time.Sleep(time.Millisecond) {
				if elapsed := time.Since(began); elapsed%(10*time.Millisecond) == 0 {
					object := &corev1.ConfigMap{}
					object.UID = types.UID(elapsed.String())
					sum.Add(object)
					now = created{number(sum.Revision()), now.objects + 1}
					c.Replace(nil, object)
					if elapsed%rewriteInterval == 0 {
						url, writes = now, writes+1
					}
				}
				for range perMillisecond {
					wanted := url
					done.Go(func() {
						asked := time.Now()
						value, err := c.At(t.Context(), wanted.Revision())
						require.NoError(t, err)
						require.GreaterOrEqual(t, value.objects, wanted.objects)
						require.LessOrEqual(t, time.Since(asked), 2*latency)
					})
				}
				synctest.Wait()
			}
			done.Wait()
			require.LessOrEqual(t, reads, int(lasts/liveAge)+writes)
		})
	}
}

// Webhooks are those of one of the values from which the last were generated.
func TestRevisionCacheRemembersTheValuesOfWebhooks(t *testing.T) {
	t.Parallel()
	c := NewRevisionCache[number](nil, nil, nil)
	of := func(revisions ...string) number {
		value, isKnown := c.OfWebhooks(func(revision string) bool { return slices.Contains(revisions, revision) })
		require.Equal(t, value != "", isKnown)
		return value
	}
	for _, value := range []number{"1", "2", "3", "1", "4", "5"} {
		c.Remember(value)
	}
	require.Equal(t, number("1"), of("1"))
	require.Equal(t, number("4"), of("1", "3", "4"), "the last one")
	require.Empty(t, of("2"), "too many came after it")
}
