// Package queue holds the queue of the namespaces to populate, which several features add namespaces to.
package queue

import (
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/internal/backoff"
)

// Priorities of namespaces. A user is waiting for a new namespace, but not for the last one of a rollout.
const (
	priorityNew  = 100
	priorityBulk = -100
)

// firstRetry is how long after its first failure a namespace is tried again.
const firstRetry = 200 * time.Millisecond

// Drift is corrected at once at first. After quickCorrections in a namespace, it is corrected every slowCorrections, so
// that the operator and another controller that write the same field do not keep the API server busy.
const (
	quickCorrections = 100
	slowCorrections  = time.Second
	// remembered is how many namespaces with corrections are remembered.
	remembered = 10_000
)

// Queue is the queue of namespaces to reconcile. A namespace that is queued twice is reconciled once, with the higher
// priority.
type Queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	// corrections are the *rate.Limiter of namespaces.
	corrections *lru.Cache
}

// New returns an empty queue.
func New(queues *backoff.Queues) *Queue {
	return &Queue{PriorityQueue: queues.NewRetrying("namespace", firstRetry), corrections: lru.New(remembered)}
}

// AddNew queues namespaces that were created just now or are still initializing, in that order.
func (q *Queue) AddNew(namespaces ...string) { q.add(priorityNew, 0, namespaces...) }

// AddWaiting queues an initializing namespace for later.
func (q *Queue) AddWaiting(namespace string, after time.Duration) {
	q.add(priorityNew, after, namespace)
}

// AddChanged queues a namespace that itself changed.
func (q *Queue) AddChanged(namespace string) { q.add(0, 0, namespace) }

// AddChangedLater queues a namespace that is to change at a later time.
func (q *Queue) AddChangedLater(namespace string, after time.Duration) { q.add(0, after, namespace) }

// AddDrifted queues a namespace in which a populated object changed.
func (q *Queue) AddDrifted(namespace string) {
	var after time.Duration
	if limiter, ok := q.corrections.Get(namespace); ok && limiter.(*rate.Limiter).Tokens() < 1 {
		after = slowCorrections
	}
	q.add(0, after, namespace)
}

// Corrected records that drift was corrected in a namespace.
func (q *Queue) Corrected(namespace string) {
	limiter, ok := q.corrections.Get(namespace)
	if !ok {
		limiter = rate.NewLimiter(rate.Every(slowCorrections), quickCorrections)
		q.corrections.Add(namespace, limiter)
	}
	limiter.(*rate.Limiter).Allow()
}

// AddBulk queues the namespaces of a rollout.
func (q *Queue) AddBulk(namespaces ...string) { q.add(priorityBulk, 0, namespaces...) }

// AddBulkLater queues a namespace that waits for something that concerns many.
func (q *Queue) AddBulkLater(namespace string, after time.Duration) {
	q.add(priorityBulk, after, namespace)
}

func (q *Queue) add(priority int, after time.Duration, namespaces ...string) {
	requests := make([]reconcile.Request, 0, len(namespaces))
	for _, namespace := range namespaces {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}})
	}
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(priority), After: after}, requests...)
}
