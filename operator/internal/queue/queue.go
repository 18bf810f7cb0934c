// Package queue holds the queue of the namespaces to populate, which several features add namespaces to.
package queue

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/internal/backoff"
)

// Reason is why a namespace is queued. It is the priority, too: a user waits for a namespace that opens, but
// not for the last one of a rollout.
type Reason int

const (
	// Rollout is the reason for something that concerns many namespaces.
	Rollout Reason = -100
	// Changed is the reason for a namespace that changed itself, or in which a populated object did.
	Changed Reason = 0
	// Opening is the reason for a namespace that was created just now or is initializing, and for one whose
	// reconciliation waits for a cache.
	Opening Reason = 100
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

// Enqueue queues namespaces, in their order, for when a time has passed.
func (q *Queue) Enqueue(reason Reason, after time.Duration, namespaces ...string) {
	requests := make([]reconcile.Request, 0, len(namespaces))
	for _, namespace := range namespaces {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}})
	}
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(int(reason)), After: after}, requests...)
}
