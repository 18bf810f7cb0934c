package backoff

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func requestFor(name string) reconcile.Request {
	return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
}

func TestRetriesAreBounded(t *testing.T) {
	limits := newRetries(200 * time.Millisecond)
	var waits []time.Duration
	for range 10 {
		waits = append(waits, limits.When(requestFor("a")))
	}
	const ms = time.Millisecond
	require.Equal(t,
		[]time.Duration{
			200 * ms, 400 * ms, 800 * ms, 1600 * ms, 3200 * ms, 6400 * ms, 12800 * ms, 25600 * ms, LastRetry, LastRetry,
		}, waits)
	require.Equal(t, 10, limits.NumRequeues(requestFor("a")))
	require.Equal(t, 200*ms, limits.When(requestFor("b")), "another one has failed once")
	for range 1000 {
		limits.When(requestFor("b"))
	}
	require.Equal(t, LastRetry, limits.When(requestFor("b")))
	limits.Forget(requestFor("a"))
	require.Zero(t, limits.NumRequeues(requestFor("a")))
	require.Equal(t, 200*ms, limits.When(requestFor("a")))
}

func TestWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queues := &Queues{}
		one, other := queues.NewRetrying("one", FirstRetry), queues.NewRetrying("other", time.Second)
		defer other.ShutDown()
		defer one.ShutDown()
		failed := func(priority int) priorityqueue.AddOpts {
			return priorityqueue.AddOpts{RateLimited: true, Priority: &priority}
		}
		for range 20 { // until it waits for long
			one.AddWithOpts(failed(100), requestFor("new"))
			request, _ := one.Get()
			require.Equal(t, requestFor("new"), request)
			one.Done(request)
		}
		one.AddWithOpts(failed(100), requestFor("new"))
		one.AddWithOpts(failed(0), requestFor("changed"))
		one.AddWithOpts(failed(0), requestFor("succeeded"))
		synctest.Wait() // until it is known to have failed
		one.Forget(requestFor("succeeded"))
		other.AddWithOpts(failed(wakePriority), requestFor("rollout"))
		other.AddAfter(requestFor("waits for something else"), time.Hour)
		synctest.Wait()
		require.Zero(t, one.Len()+other.Len())

		queues.Wake()
		require.Equal(t, 2, one.Len())
		require.Equal(t, 1, other.Len())
		for _, next := range []string{"new", "changed"} {
			request, _ := one.Get()
			require.Equal(t, requestFor(next), request, "the priority stays")
			require.Zero(t, one.NumRequeues(request))
			one.Done(request)
		}
		request, _ := other.Get()
		require.Equal(t, requestFor("rollout"), request)
		other.Done(request)
	})
}
