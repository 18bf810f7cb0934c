package policyspace

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Requests of a namespace are released one at a time, in the order in which they arrived.
func TestSequenceReleasesOneAfterEachDecision(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests := newSequence()
		var mu sync.Mutex
		var order []int
		released := func() []int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(order)
		}
		arrive := func(number int) {
			go func() {
				if requests.acquire(t.Context(), "a") {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, number)
				}
			}()
			synctest.Wait()
		}
		for i := range 4 {
			arrive(i)
		}
		require.True(t, requests.acquire(t.Context(), "b"), "another namespace has its own sequence")
		require.Equal(t, []int{0}, released())
		requests.decided("a", decision{since: "1"})
		require.Equal(t, []int{0, 1}, released())
		requests.decided("a", decision{since: "1"}) // another replica or policy space reports the same decision
		require.Equal(t, []int{0, 1}, released())
		// The API server tries again after a denial, which releases no other request. A denial after the last retry is
		// of the next request.
		for try := range retries + 1 {
			requests.decided("a", decision{since: "2", used: "pods=4", denied: true})
			require.Equal(t, []int{0, 1, 2}, released(), "try %d", try)
		}
		requests.decided("a", decision{since: "2", used: "pods=4", denied: true})
		require.Equal(t, []int{0, 1, 2, 3}, released())
		// A request without a decision releases the next one after a timeout.
		arrive(4)
		require.Equal(t, []int{0, 1, 2, 3}, released())
		time.Sleep(decisionTime)
		require.Equal(t, []int{0, 1, 2, 3, 4}, released())
		time.Sleep(decisionTime)
		synctest.Wait()
		require.Empty(t, requests.waiters)
	})
}

// The API server asks four times about one request, and the same may be denied again, whether or not others wait.
func TestSequenceRecognizesRepeatedDecisions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests := newSequence()
		denied := decision{since: "1", used: "pods=4", denied: true}
		for range 2 {
			require.True(t, requests.decided("a", denied))
			for range retries {
				require.False(t, requests.decided("a", denied))
			}
		}
		require.True(t, requests.decided("b", denied), "another namespace")
		require.False(t, requests.decided("b", denied))
		time.Sleep(retryTime + time.Millisecond)
		require.True(t, requests.decided("b", denied), "another request")
		require.True(t, requests.decided("b", decision{since: "1"}))
		for range retries + 1 {
			require.False(t, requests.decided("b", decision{since: "1"}), "each replica and policy space reports it")
		}
	})
}

// A request that stops waiting is not released, and the next one is.
func TestSequenceSkipsRequestsThatStopWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests := newSequence()
		require.True(t, requests.acquire(t.Context(), "a"))
		impatient, cancel := context.WithTimeout(t.Context(), decisionTime/2)
		defer cancel()
		require.False(t, requests.acquire(impatient, "a"))
		done := make(chan bool)
		go func() { done <- requests.acquire(t.Context(), "a") }()
		synctest.Wait()
		requests.decided("a", decision{since: "1"})
		require.True(t, <-done)
		requests.release("a")
		requests.release("a") // no request is waiting
		require.Empty(t, requests.waiters)
	})
}

// After requests of a namespace arrived together although they were sequenced, its requests wait longer for a decision.
func TestSequenceWaitsLongerAfterContention(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests := newSequence()
		require.True(t, requests.acquire(t.Context(), "a"))
		requests.decided("a", decision{since: "1", used: "pods=3", denied: true, contended: true})
		for _, limit := range []time.Duration{longDecisionTime, decisionTime} {
			require.True(t, requests.acquire(t.Context(), "a"))
			released := make(chan bool, 1)
			go func() { released <- requests.acquire(t.Context(), "a") }()
			time.Sleep(limit - time.Millisecond)
			synctest.Wait()
			require.Empty(t, released)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Len(t, released, 1)
			requests.release("a")
			require.True(t, requests.acquire(t.Context(), "b"))
			time.Sleep(decisionTime)
			synctest.Wait()
			require.NotContains(t, requests.waiters, "b", "another namespace had no contention")
			time.Sleep(contendedTime)
		}
	})
}
