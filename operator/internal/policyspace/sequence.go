package policyspace

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
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
	// retries is how often the API server tries again to write usage after a denial, all within retryTime.
	retries   = 3
	retryTime = 10 * time.Second
	// maxRemembered is the number of namespaces of which the last decision is remembered. In others, one that is
	// repeated is taken for a new one.
	maxRemembered = 1000
)

// sequence releases the requests of a namespace one at a time: the next one is released when the usage of the request
// before has been written or denied. It is safe for concurrent use.
type sequence struct {
	mu sync.Mutex
	// waiters are the requests that wait, by namespace. A namespace in which no request has been released is missing.
	waiters map[string]*waiters
	// contended is when requests of a namespace arrived together last. Times before contendedTime may be missing.
	contended map[string]time.Time
	// last has the last decision of a namespace as a repeatedDecision.
	last *utilcache.LRUExpireCache
}

// waiters are the requests of a namespace that wait for a decision on the request that was released.
type waiters struct {
	// timeout releases the next request if there is no decision.
	timeout *time.Timer
	waiting []chan struct{}
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

// repeatedDecision is a decision, and how often it has been repeated.
type repeatedDecision struct {
	decision
	repeats int
}

func newSequence() *sequence {
	return &sequence{
		waiters: map[string]*waiters{}, contended: map[string]time.Time{},
		last: utilcache.NewLRUExpireCache(maxRemembered),
	}
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

// decided releases the next request of a namespace after a decision, and reports whether the decision is a new one.
// Repetitions of a decision release none: several replicas and policy spaces report the same decision, and the API
// server tries again to write denied usage.
func (s *sequence) decided(namespace string, what decision) (isNew bool) {
	s.mu.Lock()
	if what.contended {
		maps.DeleteFunc(s.contended, func(_ string, at time.Time) bool { return time.Since(at) > contendedTime })
		s.contended[namespace] = time.Now()
		what.contended = false // a retry may be denied for another reason, and is the same decision
	}
	remembered, _ := s.last.Get(namespace)
	last, _ := remembered.(repeatedDecision)
	last.repeats++
	if isNew = last.decision != what || what.denied && last.repeats > retries; isNew {
		last = repeatedDecision{decision: what}
	}
	s.last.Add(namespace, last, retryTime)
	s.mu.Unlock()
	if isNew {
		s.release(namespace)
	}
	return isNew
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
