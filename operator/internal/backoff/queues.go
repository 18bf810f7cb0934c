// Package backoff has controllers try again what failed: less and less often, and at once when the API server answers
// again.
package backoff

import (
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// What fails is tried again after FirstRetry, unless a queue says otherwise, and then after twice as long each time, up
// to LastRetry.
const (
	FirstRetry = 5 * time.Millisecond
	LastRetry  = 30 * time.Second
)

// wakePriority is no higher than that of anything else, so that what is queued already keeps its own.
const wakePriority = -100

type (
	// Queue is the queue of a controller.
	Queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	// PriorityQueue is a queue that New and NewRetrying make.
	PriorityQueue = priorityqueue.PriorityQueue[reconcile.Request]
	// Limiter decides when a request that failed is tried again.
	Limiter = workqueue.TypedRateLimiter[reconcile.Request]
)

// Queues holds the queues of all controllers. The zero value holds none.
type Queues struct {
	mu   sync.Mutex
	made []made
}

type made struct {
	queue   PriorityQueue
	retries *retries
}

// New makes the queue of a controller, as controller.Options.NewQueue. The limiter is not used.
func (q *Queues) New(name string, _ Limiter) Queue {
	return q.NewRetrying(name, FirstRetry)
}

// NewRetrying makes the queue of a controller whose first retry is later or earlier.
func (q *Queues) NewRetrying(name string, firstRetry time.Duration) PriorityQueue {
	limits := &retries{first: firstRetry, failures: map[reconcile.Request]int{}}
	one := priorityqueue.New(name, func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limits })
	q.mu.Lock()
	defer q.mu.Unlock()
	q.made = append(q.made, made{one, limits})
	return one
}

// Wake has all that failed tried again at once, as if it had not failed before.
func (q *Queues) Wake() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, one := range q.made {
		one.queue.AddWithOpts(priorityqueue.AddOpts{Priority: new(wakePriority)}, one.retries.forgetAll()...)
	}
}

// retries is a limiter that doubles the time between the retries of a request.
type retries struct {
	first time.Duration

	mu       sync.Mutex
	failures map[reconcile.Request]int
}

// When returns how long to wait after a failure.
func (r *retries) When(request reconcile.Request) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := r.first
	for range r.failures[request] {
		if wait *= 2; wait >= LastRetry {
			wait = LastRetry
			break
		}
	}
	r.failures[request]++
	return wait
}

// Forget is called after a success.
func (r *retries) Forget(request reconcile.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.failures, request)
}

// NumRequeues returns how often a request failed in a row.
func (r *retries) NumRequeues(request reconcile.Request) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failures[request]
}

// forgetAll returns what it forgets.
func (r *retries) forgetAll() []reconcile.Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]reconcile.Request, 0, len(r.failures))
	for request := range r.failures {
		all = append(all, request)
	}
	clear(r.failures)
	return all
}
