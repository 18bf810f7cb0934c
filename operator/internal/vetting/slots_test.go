package vetting

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// queue has the requests of a test, which keep their slots until they are finished.
type queue struct {
	*slots
	t        *testing.T
	mu       sync.Mutex
	order    []string
	finished map[string]chan struct{}
}

func newQueue(t *testing.T, free int) *queue {
	t.Helper()
	return &queue{slots: newSlots(free), t: t, finished: map[string]chan struct{}{}}
}

func (q *queue) request(name, user string, unlimited bool) {
	finished := make(chan struct{})
	q.finished[name] = finished
	go func() {
		done, err := q.acquire(q.t.Context(), user, unlimited)
		if err != nil {
			return
		}
		q.mu.Lock()
		q.order = append(q.order, name)
		q.mu.Unlock()
		<-finished
		done()
	}()
	synctest.Wait()
}

func (q *queue) finish(name string) {
	close(q.finished[name])
	synctest.Wait()
}

// expect checks which requests have had slots until now, in their order.
func (q *queue) expect(names ...string) {
	q.t.Helper()
	q.mu.Lock()
	defer q.mu.Unlock()
	require.Equal(q.t, names, q.order)
}

func TestUsersShareSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 2)
		q.request("a1", "a", false)
		q.request("a2", "a", false)
		q.request("a3", "a", false)
		q.expect("a1") // one of a user
		q.request("b1", "b", false)
		q.request("c1", "c", false)
		q.expect("a1", "b1") // two at a time
		q.request("admin1", "admin", true)
		q.expect("a1", "b1", "admin1")
		q.request("admin2", "admin", true)
		q.expect("a1", "b1", "admin1")
		q.finish("b1")
		q.expect("a1", "b1", "admin1", "c1") // in the order of their arrival
		q.finish("a1")
		q.expect("a1", "b1", "admin1", "c1", "admin2") // before the next request of a
		q.finish("admin2")
		q.expect("a1", "b1", "admin1", "c1", "admin2", "a2")
		q.finish("a2")
		q.expect("a1", "b1", "admin1", "c1", "admin2", "a2", "a3")
		for _, name := range []string{"c1", "a3", "admin1"} {
			q.finish(name)
		}
		require.Equal(t, 2, q.free)
		require.Equal(t, 1, q.reserved)
		require.Empty(t, q.active)
	})
}

// Users with many requests that came earlier delay the request of another user by one of each of them.
func TestUsersWithManyRequestsDelayOthersByOneEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(t, 2)
		for _, name := range []string{"a1", "b1", "a2", "b2", "a3", "b3"} {
			q.request(name, name[:1], false)
		}
		q.request("c1", "c", false)
		q.request("d1", "d", false)
		q.expect("a1", "b1")
		q.finish("a1")
		q.expect("a1", "b1", "c1")
		q.finish("b1")
		q.expect("a1", "b1", "c1", "d1")
		q.finish("c1")
		q.finish("d1")
		q.expect("a1", "b1", "c1", "d1", "a2", "b2")
		for _, name := range []string{"a2", "b2", "a3", "b3"} {
			q.finish(name)
		}
	})
}

// An edit that only prunes objects may compile the stored template with all combinations of its overlays.
func TestEditsThatPruneWaitForASlot(t *testing.T) {
	admission := &Admission{compiling: newSlots(1)}
	done, err := admission.compiling.acquire(t.Context(), "a", false)
	require.NoError(t, err)
	defer done()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	pruned := templateWith(func(spec *v1alpha1.NamespaceTemplateSpec) {
		spec.DeletionPolicy = v1alpha1.DeletionDelete
	}, labelled("a", "dev"))
	v := &review{Admission: admission, edit: edit{old: pruned}, request: &webhook.Request{}}
	_, err = v.judgeUnchanged(ended)
	require.ErrorIs(t, err, context.Canceled)
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
