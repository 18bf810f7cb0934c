package policyspace

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// decisionTime is how long the usage of a request may take to be written until the next request is released. The
	// usage of a request that another plugin denies is never written.
	decisionTime = 100 * time.Millisecond
	// longDecisionTime replaces decisionTime in a namespace for contendedTime after requests arrived together although
	// they were sequenced, because the API server was slower than decisionTime. Otherwise clients that try again could
	// arrive together again and again, and none would be allowed.
	longDecisionTime = 2 * time.Second
	contendedTime    = time.Minute
	// retries is how often the API server tries again to write usage after a denial.
	retries = 3
)

// sequence releases the requests of a namespace one at a time: the next one is released when the usage of the request
// before has been written or denied. It is safe for concurrent use.
type sequence struct {
	mu sync.Mutex
	// waiters are the requests that wait, by namespace. A namespace in which no request has been released is missing.
	waiters map[string]*waiters
	// contended is when requests of a namespace arrived together last. Times before contendedTime may be missing.
	contended map[string]time.Time
}

// waiters are the requests of a namespace that wait for a decision on the request that was released.
type waiters struct {
	// timeout releases the next request if there is no decision.
	timeout *time.Timer
	waiting []chan struct{}
	// last is the decision that released a request last, and repeats is how often it has been repeated since.
	last    decision
	repeats int
}

// decision is whether a change of usage was allowed or denied.
type decision struct {
	// since is the resourceVersion of the usage quota that the change goes on from. used is the usage after a change
	// that was denied.
	since, used string
	denied      bool
	// contended is whether the change is the sum of several requests, and was denied only for that reason.
	contended bool
}

func newSequence() *sequence {
	return &sequence{waiters: map[string]*waiters{}, contended: map[string]time.Time{}}
}

// acquire waits until a request of a namespace is released. It returns false if ctx ended before.
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
	return true // it was released at the same time
}

// decided releases the next request of a namespace after a decision. Repetitions of a decision release none: several
// replicas and policy spaces report the same decision, and the API server tries again to write denied usage.
func (s *sequence) decided(namespace string, what decision) {
	s.mu.Lock()
	if what.contended {
		maps.DeleteFunc(s.contended, func(_ string, at time.Time) bool { return time.Since(at) > contendedTime })
		s.contended[namespace] = time.Now()
		what.contended = false // a retry may be denied for another reason, and is the same decision
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

// release releases the next request of a namespace.
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

// releaseLater releases the next request of a namespace after decisionTime, or longDecisionTime where it applies.
func (s *sequence) releaseLater(namespace string) *time.Timer {
	limit := decisionTime
	if time.Since(s.contended[namespace]) < contendedTime {
		limit = longDecisionTime
	}
	return time.AfterFunc(limit, func() { s.release(namespace) })
}
