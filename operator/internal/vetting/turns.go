package vetting

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// turns limits how many requests do the same work at a time. Users take turns: one who makes many requests has one under
// way, so that others wait for one of them at most. A place is reserved for users who may do everything.
type turns struct {
	mu             sync.Mutex
	free, reserved int
	// active are the users who have a turn, but not those who may do everything.
	active  map[string]bool
	waiting []*waiter
}

// waiter is a request that waits for its turn.
type waiter struct {
	user      string
	unlimited bool
	// place is sent the place that the request has got: free or reserved.
	place chan *int
}

// newTurns returns turns with some places for everybody, and one more for users who may do everything.
func newTurns(places int) *turns {
	return &turns{free: places, reserved: 1, active: map[string]bool{}}
}

// take waits for a turn of a user. The caller calls done when the work is done.
func (t *turns) take(ctx context.Context, user string, unlimited bool) (done func(), err error) {
	w := &waiter{user: turnOf(user), unlimited: unlimited, place: make(chan *int, 1)}
	t.mu.Lock()
	t.waiting = append(t.waiting, w)
	t.next()
	t.mu.Unlock()
	select {
	case place := <-w.place:
		return func() { t.release(w, place) }, nil
	case <-ctx.Done():
	}
	t.mu.Lock()
	t.waiting = slices.DeleteFunc(t.waiting, func(other *waiter) bool { return other == w })
	t.mu.Unlock()
	select {
	case place := <-w.place: // it was this request's turn just now
		t.release(w, place)
	default:
	}
	return nil, ctx.Err()
}

// turnOf returns what requests of a user count as. All service accounts of a namespace are one, since whoever may create
// one may create many.
func turnOf(user string) string {
	if rest, isAccount := strings.CutPrefix(user, "system:serviceaccount:"); isAccount {
		namespace, _, _ := strings.Cut(rest, ":")
		return "system:serviceaccount:" + namespace
	}
	return user
}

func (t *turns) release(w *waiter, place *int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*place++
	if !w.unlimited {
		delete(t.active, w.user)
	}
	t.next()
}

// next gives places to those who wait, in the order in which they came. The caller holds the lock.
func (t *turns) next() {
	t.waiting = slices.DeleteFunc(t.waiting, func(w *waiter) bool {
		place := &t.free
		switch {
		case w.unlimited && t.reserved > 0:
			place = &t.reserved
		case t.free == 0 || !w.unlimited && t.active[w.user]:
			return false
		}
		*place--
		if !w.unlimited {
			t.active[w.user] = true
		}
		w.place <- place
		return true
	})
}
