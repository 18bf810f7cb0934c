package controller

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Priorities of work on a namespace. Somebody waits for a new one; nobody waits for a rollout to the ten thousandth.
const (
	priorityNew  = 100
	priorityBulk = -100
)

// Namespaces that fail are tried again soon at first, then less and less often.
const (
	firstRetry = 200 * time.Millisecond
	lastRetry  = 5 * time.Minute
)

// Queue holds the namespaces to look at. One that is queued twice is looked at once, with the higher priority.
type Queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
}

// NewQueue returns an empty queue.
func NewQueue() *Queue {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, lastRetry)
	return &Queue{priorityqueue.New("namespace", func(o *priorityqueue.Opts[reconcile.Request]) { o.RateLimiter = limiter })}
}

// AddNew queues a namespace that was just created.
func (q *Queue) AddNew(namespace string) { q.add(priorityNew, namespace) }

// AddChanged queues a namespace in which something changed.
func (q *Queue) AddChanged(namespace string) { q.add(0, namespace) }

// AddBulk queues namespaces that a template's change is rolled out to.
func (q *Queue) AddBulk(namespaces ...string) { q.add(priorityBulk, namespaces...) }

func (q *Queue) add(priority int, namespaces ...string) {
	requests := make([]reconcile.Request, 0, len(namespaces))
	for _, namespace := range namespaces {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}})
	}
	q.AddWithOpts(priorityqueue.AddOpts{Priority: ptr.To(priority)}, requests...)
}
