// Package backoff decides when controllers retry what failed: with intervals that double after each failure, and at
// once when the API server answers again after an outage. Queues has the queues of all controllers, and Outage detects
// outages.
package backoff

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// LongestWait is the longest time until what waits for a time, such as an end that a user set, is reconciled. The clock
// may be changed meanwhile.
const LongestWait = time.Hour

// The first retry after a failure comes after FirstRetry, unless a queue has another interval. Each further retry comes
// after twice as long, up to LastRetry.
const (
	FirstRetry = 5 * time.Millisecond
	LastRetry  = 30 * time.Second
)

// wakePriority is lower than every other priority, so that requests that are already queued keep theirs.
const wakePriority = -100

type (
	// Queue is the queue of a controller.
	Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	// PriorityQueue is a queue that New and NewRetrying make.
	PriorityQueue = priorityqueue.PriorityQueue[reconcile.Request]
	// Limiter decides when a request that failed is tried again.
	Limiter = workqueue.TypedRateLimiter[reconcile.Request]
)

// Queues has the queues of all controllers. The zero value is empty. It is safe for concurrent use.
type Queues struct {
	mu   sync.Mutex
	made []made
}

type made struct {
	queue   PriorityQueue
	retries *retries
}

// New returns the queue of a controller. It is a controller.Options.NewQueue, and does not use the limiter.
func (q *Queues) New(name string, _ Limiter) Queue {
	return q.NewRetrying(name, FirstRetry)
}

// NewRetrying returns the queue of a controller with another interval before the first retry.
func (q *Queues) NewRetrying(name string, firstRetry time.Duration) PriorityQueue {
	limits := newRetries(firstRetry)
	one := priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limits })
	q.mu.Lock()
	defer q.mu.Unlock()
	q.made = append(q.made, made{one, limits})
	return one
}

// Wake queues all failed requests at once, and resets their intervals.
func (q *Queues) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.made {
		one.queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(wakePriority)}, one.retries.forgetAll()...)
	}
}

// retries is a rate limiter that doubles the interval with each failure of a request. It knows which requests failed.
type retries struct {
	Limiter

	mu     sync.Mutex
	failed sets.Set[reconcile.Request]
}

func newRetries(first time.Duration) *retries {
	return &retries{
		Limiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](first, LastRetry),
		failed:  sets.New[reconcile.Request](),
	}
}

// When returns the interval before the next retry, and counts a failure.
func (r *retries) When(request reconcile.Request) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed.Insert(request)
	return r.Limiter.When(request)
}

// Forget resets the failures of a request, after it succeeded.
func (r *retries) Forget(request reconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed.Delete(request)
	r.Limiter.Forget(request)
}

// forgetAll resets the failures of all requests, and returns the requests.
func (r *retries) forgetAll() []reconcile.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.failed.UnsortedList()
	for _, request := range all {
		r.Limiter.Forget(request)
	}
	r.failed.Clear()
	return all
}
