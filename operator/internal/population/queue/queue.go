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

// Priorities of work on a namespace. Somebody waits for a new one; nobody waits for a rollout to the ten thousandth.
const (
	priorityNew  = 100
	priorityBulk = -100
)

// firstRetry is when a namespace that failed is tried again, for the first time.
const firstRetry = 200 * time.Millisecond

// Somebody who changes a populated object is put right at once, a writer that never gives in (another controller that
// wants the field) only so many times, and then slowly: two controllers must not keep the API server busy.
const (
	quickCorrections = 100
	slowCorrections  = time.Second
	// fights is how many namespaces are remembered for it.
	fights = 10_000
)

// Queue holds the namespaces to look at. One that is queued twice is looked at once, with the higher priority.
type Queue struct {
	priorityqueue.PriorityQueue[reconcile.Request]
	// corrections are the *rate.Limiter of namespaces.
	corrections *lru.Cache
}

// NewQueue returns an empty queue.
func New(queues *backoff.Queues) *Queue {
	return &Queue{PriorityQueue: queues.NewRetrying("namespace", firstRetry), corrections: lru.New(fights)}
}

// AddNew queues namespaces that were just created, or that still wait for what comes with creation, in that order.
func (q *Queue) AddNew(namespaces ...string) { q.add(priorityNew, 0, namespaces...) }

// AddWaiting queues an initializing namespace for later.
func (q *Queue) AddWaiting(namespace string, after time.Duration) {
	q.add(priorityNew, after, namespace)
}

// AddChanged queues a namespace that itself changed.
func (q *Queue) AddChanged(namespace string) { q.add(0, 0, namespace) }

// AddDrifted queues a namespace in which a populated object changed.
func (q *Queue) AddDrifted(namespace string) {
	var after time.Duration
	if limiter, ok := q.corrections.Get(namespace); ok && limiter.(*rate.Limiter).Tokens() < 1 {
		after = slowCorrections
	}
	q.add(0, after, namespace)
}

// Corrected notes that drift was corrected in a namespace.
func (q *Queue) Corrected(namespace string) {
	limiter, ok := q.corrections.Get(namespace)
	if !ok {
		limiter = rate.NewLimiter(rate.Every(slowCorrections), quickCorrections)
		q.corrections.Add(namespace, limiter)
	}
	limiter.(*rate.Limiter).Allow()
}

// AddBulk queues namespaces that a template's change is rolled out to.
func (q *Queue) AddBulk(namespaces ...string) { q.add(priorityBulk, 0, namespaces...) }

func (q *Queue) add(priority int, after time.Duration, namespaces ...string) {
	requests := make([]reconcile.Request, 0, len(namespaces))
	for _, namespace := range namespaces {
		requests = append(requests, reconcile.Request{NamespacedName: types.NamespacedName{Name: namespace}})
	}
	q.AddWithOpts(priorityqueue.AddOpts{Priority: new(priority), After: after}, requests...)
}
