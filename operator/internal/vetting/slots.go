package vetting

import (
	"context"
	"slices"
	"strings"
	"sync"
)

// slots limits how many requests do the same work at a time. A user has one slot at most. After it, the user's other
// requests wait for all that wait by then, so that many requests of one user delay those of others by one of them. One
// more slot is for users who may do everything.
type slots struct {
	mu             sync.Mutex
	free, reserved int
	// active are the users who have a slot, but not those who may do everything.
	active  map[string]bool
	waiting []*waiter
}

// waiter is a request that waits for a slot.
type waiter struct {
	user      string
	unlimited bool
	// granted is sent the counter from which the slot comes: free or reserved.
	granted chan *int
}

// newSlots returns a number of slots for all users, and one more for users who may do everything.
func newSlots(free int) *slots {
	return &slots{free: free, reserved: 1, active: map[string]bool{}}
}

// acquire waits for a slot of a user. The caller calls done when the work is done.
func (s *slots) acquire(ctx context.Context, user string, unlimited bool) (done func(), err error) {
	w := &waiter{user: identityOf(user), unlimited: unlimited, granted: make(chan *int, 1)}
	s.mu.Lock()
	s.waiting = append(s.waiting, w)
	s.next()
	s.mu.Unlock()
	select {
	case from := <-w.granted:
		return func() { s.release(w, from) }, nil
	case <-ctx.Done():
	}
	s.mu.Lock()
	s.waiting = slices.DeleteFunc(s.waiting, func(other *waiter) bool { return other == w })
	s.mu.Unlock()
	select {
	case from := <-w.granted: // it was granted just now
		s.release(w, from)
	default:
	}
	return nil, ctx.Err()
}

// identityOf returns what requests of a user count as. All service accounts of a namespace count as one user, since a
// user who may create one may create many.
func identityOf(user string) string {
	if rest, isAccount := strings.CutPrefix(user, "system:serviceaccount:"); isAccount {
		namespace, _, _ := strings.Cut(rest, ":")
		return "system:serviceaccount:" + namespace
	}
	return user
}

func (s *slots) release(w *waiter, from *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*from++
	if !w.unlimited {
		delete(s.active, w.user)
		s.toEnd(w.user)
	}
	s.next()
}

// toEnd lets those requests of a user who had a slot wait for all others that wait now. The caller holds the lock.
func (s *slots) toEnd(user string) {
	var own, others []*waiter
	for _, w := range s.waiting {
		if w.user == user {
			own = append(own, w)
		} else {
			others = append(others, w)
		}
	}
	s.waiting = slices.Concat(others, own)
}

// next grants slots to those who wait, in their order. The caller holds the lock.
func (s *slots) next() {
	s.waiting = slices.DeleteFunc(s.waiting, func(w *waiter) bool {
		from := &s.free
		switch {
		case w.unlimited && s.reserved > 0:
			from = &s.reserved
		case s.free == 0 || !w.unlimited && s.active[w.user]:
			return false
		}
		*from--
		if !w.unlimited {
			s.active[w.user] = true
		}
		w.granted <- from
		return true
	})
}
