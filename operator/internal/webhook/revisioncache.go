package webhook

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/attributes"
)

const (
	// maxReached is the number of revisions that a RevisionCache remembers. A revision that it has dropped costs reads.
	maxReached = 10_000
	// liveTimeout is how long one read from the API server may take.
	liveTimeout = 10 * time.Second
)

// RevisionCache provides what a plugin decides by, such as all rules of the cluster, from the objects in a cache that
// may be late. The plugin has the revision in the URL of its webhooks. So it never decides by a value that is older
// than the one because of which the API server sends a request. It is safe for concurrent use.
type RevisionCache[T interface{ Revision() string }] struct {
	// Changes notifies after the UIDs or generations of the objects changed.
	Changes Changes

	cached client.Reader
	read   func(ctx context.Context, from client.Reader, options ...client.ListOption) (T, error)
	// live reads from the API server. Requests share reads, because a user who creates and deletes objects all the time
	// makes many requests need one.
	live Batches[*T]

	mu sync.Mutex
	// value is that of the cache if isRead.
	value  T
	isRead bool
	// sum is the sum of all objects that the informers have reported.
	sum attributes.Sum
	// reached contains revisions. A value with the revision of sum is at least as new as each of them.
	reached map[string]bool
}

// NewRevisionCache returns a cache of the value that read returns. The revision of the value must be that of the
// attributes.Sum of all objects that read reads. live reads from the API server.
func NewRevisionCache[T interface{ Revision() string }](
	cached, live client.Reader,
	read func(ctx context.Context, from client.Reader, options ...client.ListOption) (T, error),
) *RevisionCache[T] {
	c := &RevisionCache[T]{cached: cached, read: read, reached: map[string]bool{}}
	c.live.Timeout = liveTimeout
	c.live.Write = func(ctx context.Context, wanted []*T) ([]error, error) {
		value, err := read(ctx, live)
		for _, one := range wanted {
			*one = value
		}
		return make([]error, len(wanted)), err
	}
	return c
}

// Replace records that an informer has replaced an object by another. Either may be nil.
func (c *RevisionCache[T]) Replace(before, now client.Object) {
	c.mu.Lock()
	earlier := c.sum
	if before != nil {
		c.sum.Remove(before)
	}
	if now != nil {
		c.sum.Add(now)
	}
	// A revision comes back after an object was created and deleted, and only then.
	isCreated := now != nil && (before == nil || before.GetUID() != now.GetUID())
	if isCreated || len(c.reached) >= maxReached {
		clear(c.reached)
	}
	c.reached[c.sum.Revision()] = true
	c.isRead = false
	isChanged := c.sum != earlier
	c.mu.Unlock()
	if isChanged {
		c.Changes.Notify()
	}
}

// Cached returns the value of the cache.
func (c *RevisionCache[T]) Cached(ctx context.Context) (T, error) {
	value, _, err := c.cachedFor(ctx, "")
	return value, err
}

// Live returns the value of the API server, by a read that began after the call.
func (c *RevisionCache[T]) Live(ctx context.Context) (T, error) {
	value := new(T)
	if err := c.live.Do(ctx, value); err != nil {
		return *new(T), err // the read may go on, and set the value
	}
	return *value, nil
}

// At returns a value that is not older than a revision; an empty revision stands for any. If the cache has not reached
// the revision, At reads the value from the API server.
func (c *RevisionCache[T]) At(ctx context.Context, revision string) (T, error) {
	if value, isReached, err := c.cachedFor(ctx, revision); err == nil && isReached {
		return value, nil
	}
	return c.Live(ctx)
}

// cachedFor returns the value of the cache, and whether it is not older than a revision. The cache may be ahead of what
// its informers have reported. Then only the value's own revision is known to be reached.
func (c *RevisionCache[T]) cachedFor(ctx context.Context, revision string) (value T, isReached bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isRead {
		if value, err = c.read(ctx, c.cached, client.UnsafeDisableDeepCopy); err != nil {
			return value, false, err
		}
		c.value, c.isRead = value, true
	}
	own := c.value.Revision()
	isReached = revision == "" || revision == own || c.reached[revision] && own == c.sum.Revision()
	return c.value, isReached, nil
}
