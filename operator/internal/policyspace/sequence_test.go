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

// Each has its turn when the one before was decided on, in the order in which they came.
func TestTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests := newSequence()
		var mu sync.Mutex
		var order []int
		called := func() []int {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(order)
		}
		come := func(number int) {
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
			come(i)
		}
		require.True(t, requests.acquire(t.Context(), "b"), "other namespaces are not concerned")
		require.Equal(t, []int{0}, called())
		requests.decided("a", decision{since: "1"})
		require.Equal(t, []int{0, 1}, called())
		requests.decided("a", decision{since: "1"}) // another replica, and another policyspace, tell the same
		require.Equal(t, []int{0, 1}, called())
		// What is refused is tried again, which ends nobody else's turn; the next one that is refused the same ends its
		// own.
		for try := range retries + 1 {
			requests.decided("a", decision{since: "2", used: "pods=4", denied: true})
			require.Equal(t, []int{0, 1, 2}, called(), "try %d", try)
		}
		requests.decided("a", decision{since: "2", used: "pods=4", denied: true})
		require.Equal(t, []int{0, 1, 2, 3}, called())
		// What is never heard of again has its time.
		come(4)
		require.Equal(t, []int{0, 1, 2, 3}, called())
		time.Sleep(decisionTime)
		require.Equal(t, []int{0, 1, 2, 3, 4}, called())
		time.Sleep(decisionTime)
		synctest.Wait()
		require.Empty(t, requests.waiters)
	})
}

// Who waits too long goes on without a turn, and nobody is called in its place.
func TestTurnsNobodyWaitsForEver(t *testing.T) {
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
		requests.release("a") // nobody has a turn
		require.Empty(t, requests.waiters)
	})
}

// Where the API server is slower than a turn, requests come together. Who is told to try again is waited for longer.
func TestTurnsLastLongerWhereTheyWereTooShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		requests := newSequence()
		require.True(t, requests.acquire(t.Context(), "a"))
		requests.decided("a", decision{since: "1", used: "pods=3", denied: true, contended: true})
		for _, limit := range []time.Duration{longDecisionTime, decisionTime} {
			require.True(t, requests.acquire(t.Context(), "a"))
			called := make(chan bool, 1)
			go func() { called <- requests.acquire(t.Context(), "a") }()
			time.Sleep(limit - time.Millisecond)
			synctest.Wait()
			require.Empty(t, called)
			time.Sleep(time.Millisecond)
			synctest.Wait()
			require.Len(t, called, 1)
			requests.release("a")
			require.True(t, requests.acquire(t.Context(), "b"))
			time.Sleep(decisionTime)
			synctest.Wait()
			require.NotContains(t, requests.waiters, "b", "elsewhere nothing was too short")
			time.Sleep(contendedTime)
		}
	})
}
