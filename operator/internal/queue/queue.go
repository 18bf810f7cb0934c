// Package queue holds the queue of the namespaces to populate, which several features add namespaces to.
package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
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

// Queue is the queue of namespaces to reconcile. A namespace that is queued twice is reconciled once, with the higher
// priority.
type Queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
}

// New returns an empty queue.
func New(queues *backoff.Queues) *Queue {
	return &Queue{PriorityQueue: queues.NewRetrying("namespace", firstRetry)}
}

// AddNew queues namespaces that were created just now or are still initializing, in that order.
func (q *Queue) AddNew(namespaces ...string) { q.add(priorityNew, 0, namespaces...) }

// AddWaiting queues an initializing namespace for later.
func (q *Queue) AddWaiting(namespace string, after time.Duration) {
	q.add(priorityNew, after, namespace)
}

// AddChanged queues a namespace that itself changed, or in which a populated object did.
func (q *Queue) AddChanged(namespace string) { q.add(0, 0, namespace) }

// AddChangedLater queues a namespace that is to change at a later time.
func (q *Queue) AddChangedLater(namespace string, after time.Duration) { q.add(0, after, namespace) }

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
