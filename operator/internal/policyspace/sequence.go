package policyspace

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// decisionTime is how long the usage of a request may take to be written until the next request goes on. The usage
	// of a request that another plugin denies is never written.
	decisionTime = 100 * time.Millisecond
	// longDecisionTime is that time while the API server turns out to be slower: for contendedTime after requests of a
	// namespace came together all the same. Otherwise clients that try again would always come together again, and none
	// would be allowed.
	longDecisionTime = 2 * time.Second
	contendedTime    = time.Minute
	// retries is how often the API server tries again to write usage that was denied.
	retries = 3
)

// sequence lets one request of a namespace go on at a time, until its usage has been written or denied. It is safe for
// concurrent use.
type sequence struct {
	mu sync.Mutex
	// waiters are by namespace, where a request has gone on.
	waiters map[string]*waiters
	// contended is when requests of a namespace came together last, if that was not long ago.
	contended map[string]time.Time
}

// waiters are the requests of a namespace that wait for one that has gone on.
type waiters struct {
	// timeout lets the next request go on if no decision does.
	timeout *time.Timer
	waiting []chan struct{}
	// last is the decision that let a request go on last, and repeats how often it was seen since.
	last    decision
	repeats int
}

// decision is whether a change of usage was allowed or denied.
type decision struct {
	// since is the resourceVersion that the change goes on from, and used the usage after it if it is denied.
	since, used string
	denied      bool
	// contended reports whether the change is the sum of several requests, and denied for that alone.
	contended bool
}

func newSequence() *sequence {
	return &sequence{waiters: map[string]*waiters{}, contended: map[string]time.Time{}}
}

// acquire returns when a request may go on. It returns false if ctx ended before.
func (s *sequence) acquire(ctx context.Context, namespace string) bool {
	s.mu.Lock()
	queue := s.waiters[namespace]
	if queue == nil {
		s.waiters[namespace] = &waiters{timeout: s.releaseLater(namespace)}
		s.mu.Unlock()
		return true
	}
	released := make(chan struct{})
	queue.waiting = append(queue.waiting, released)
	s.mu.Unlock()
	select {
	case <-released:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(queue.waiting, released); i >= 0 {
		queue.waiting = slices.Delete(queue.waiting, i, i+1)
		return false
	}
	return true // it was released just then
}

// decided releases the next request once for each decision, though more than one replica may see a decision, and the
// API server tries again what was denied.
func (s *sequence) decided(namespace string, what decision) {
	s.mu.Lock()
	if what.contended {
		maps.DeleteFunc(s.contended, func(_ string, at time.Time) bool { return time.Since(at) > contendedTime })
		s.contended[namespace] = time.Now()
		what.contended = false // it may be exceeded when it is tried again
	}
	queue := s.waiters[namespace]
	if queue == nil {
		s.mu.Unlock()
		return
	}
	isRepeated := queue.last == what
	if queue.repeats++; !isRepeated || what.denied && queue.repeats > retries {
		queue.last, queue.repeats, isRepeated = what, 0, false
	}
	s.mu.Unlock()
	if !isRepeated {
		s.release(namespace)
	}
}

// release lets the next request of a namespace go on.
func (s *sequence) release(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue := s.waiters[namespace]
	if queue == nil {
		return
	}
	queue.timeout.Stop()
	if len(queue.waiting) == 0 {
		delete(s.waiters, namespace)
		return
	}
	close(queue.waiting[0])
	queue.waiting = queue.waiting[1:]
	queue.timeout = s.releaseLater(namespace)
}

// releaseLater releases the next request of a namespace if no decision does before.
func (s *sequence) releaseLater(namespace string) *time.Timer {
	limit := decisionTime
	if time.Since(s.contended[namespace]) < contendedTime {
		limit = longDecisionTime
	}
	return time.AfterFunc(limit, func() { s.release(namespace) })
}
