package vetting

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
)

func TestUsersShareSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSlots(2)
		var mu sync.Mutex
		var order []string
		finish := map[string]chan struct{}{}
		request := func(name, user string, unlimited bool) {
			finish[name] = make(chan struct{})
			go func() {
				done, err := s.acquire(t.Context(), user, unlimited)
				if err != nil {
					return
				}
				mu.Lock()
				order = append(order, name)
				mu.Unlock()
				<-finish[name]
				done()
			}()
			synctest.Wait()
		}
		running := func(names ...string) {
			t.Helper()
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, names, order)
		}
		request("a1", "a", false)
		request("a2", "a", false)
		request("a3", "a", false)
		running("a1") // one of a user
		request("b1", "b", false)
		request("c1", "c", false)
		running("a1", "b1") // two at a time
		request("admin1", "admin", true)
		running("a1", "b1", "admin1")
		request("admin2", "admin", true)
		running("a1", "b1", "admin1")
		close(finish["b1"])
		running("a1", "b1", "admin1", "c1") // in the order of their arrival
		close(finish["a1"])
		running("a1", "b1", "admin1", "c1", "a2")
		close(finish["a2"])
		running("a1", "b1", "admin1", "c1", "a2", "a3")
		close(finish["admin1"])
		running("a1", "b1", "admin1", "c1", "a2", "a3", "admin2")
		for _, name := range []string{"c1", "a3", "admin2"} {
			close(finish[name])
		}
		synctest.Wait()
		require.Equal(t, 2, s.free)
		require.Equal(t, 1, s.reserved)
		require.Empty(t, s.active)
	})
}

func TestARequestThatGivesUpHasNoSlot(t *testing.T) {
	s := newSlots(1)
	done, err := s.acquire(t.Context(), "a", false)
	require.NoError(t, err)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.acquire(ended, "b", false)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, s.waiting)
	done()
	done, err = s.acquire(t.Context(), "b", false)
	require.NoError(t, err)
	done()
	require.Equal(t, 1, s.free)
}

func TestServiceAccountsOfANamespaceAreOneUser(t *testing.T) {
	for user, want := range map[string]string{
		"jane": "jane", "system:serviceaccount:a:b": "system:serviceaccount:a", "system:serviceaccount:a:c": "system:serviceaccount:a",
	} {
		require.Equal(t, want, identityOf(user))
	}
}
