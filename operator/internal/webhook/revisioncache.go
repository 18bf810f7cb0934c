package webhook

import (
	"context"
	"slices"
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
	// liveAge is how long requests with a revision share a value that was read for it. While a user creates and deletes
	// objects all the time, the cache has never reached the revision that the API server sends.
	liveAge = 200 * time.Millisecond
	// maxRemembered is the number of values that a RevisionCache remembers of those from which webhooks were generated.
	maxRemembered = 4
)

// RevisionCache provides what a plugin decides by, such as all rules of the cluster, from the objects in a cache that
// may be late. The plugin has the revision in the URL of its webhooks. So it never decides by a value that is older
// than the one because of which the API server sends a request. There is one exception: a revision comes back when an
// object is created and deleted. A value that was read between the two counts for liveAge. It is safe for concurrent
// use.
type RevisionCache[T interface{ Revision() string }] struct {
	// Changes notifies after the UIDs or generations of the objects changed.
	Changes Changes

	cached client.Reader
	read   func(ctx context.Context, from client.Reader, options ...client.ListOption) (T, error)
	// live reads from the API server. Requests share reads, because a user who creates and deletes objects all the time
	// makes many requests need one.
	live Batches[*liveRead[T]]

	mu sync.Mutex
	// recent is the last value that was read from the API server.
	recent recentRead[T]
	// remembered are the values from which webhooks were generated last, in this order.
	remembered []T
	// value is that of the cache if isRead.
	value  T
	isRead bool
	// sum is the sum of all objects that the informers have reported.
	sum attributes.Sum
	// reached contains revisions. A value with the revision of sum is at least as new as each of them.
	reached map[string]bool
}

// liveRead is a value that a request with a revision needs from the API server.
type liveRead[T any] struct {
	revision string
	value    T
}

// recentRead is a value that was read from the API server for requests with some revisions, which came before.
type recentRead[T any] struct {
	value     T
	revisions map[string]bool
	began     time.Time
}

// NewRevisionCache returns a cache of the value that read returns. The revision of the value must be that of the
// attributes.Sum of all objects that read reads. live reads from the API server.
func NewRevisionCache[T interface{ Revision() string }](
	cached, live client.Reader,
	read func(ctx context.Context, from client.Reader, options ...client.ListOption) (T, error),
) *RevisionCache[T] {
	c := &RevisionCache[T]{cached: cached, read: read, reached: map[string]bool{}}
	c.live.Timeout = liveTimeout
	c.live.Write = func(ctx context.Context, wanted []*liveRead[T]) ([]error, error) {
		return make([]error, len(wanted)), c.readLive(ctx, live, wanted)
	}
	return c
}

// readLive sets the values that some requests want, which may be the one that requests with their revisions share.
func (c *RevisionCache[T]) readLive(ctx context.Context, live client.Reader, wanted []*liveRead[T]) error {
	isShared := !slices.ContainsFunc(wanted, func(one *liveRead[T]) bool {
		value, isShared := c.sharedFor(one.revision)
		one.value = value
		return !isShared
	})
	if isShared {
		return nil
	}
	recent := recentRead[T]{revisions: map[string]bool{}, began: time.Now()}
	var err error
	if recent.value, err = c.read(ctx, live); err != nil {
		return err
	}
	for _, one := range wanted {
		one.value, recent.revisions[one.revision] = recent.value, true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.recent = recent
	return nil
}

// sharedFor returns the value that was just read for a revision, and whether there is one. An empty revision stands for
// a read that begins later.
func (c *RevisionCache[T]) sharedFor(revision string) (T, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	isShared := revision != "" && c.recent.revisions[revision] && time.Since(c.recent.began) < liveAge
	return c.recent.value, isShared
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
	return c.readFor(ctx, "")
}

func (c *RevisionCache[T]) readFor(ctx context.Context, revision string) (T, error) {
	wanted := &liveRead[T]{revision: revision}
	if err := c.live.Do(ctx, wanted); err != nil {
		return *new(T), err // the read may go on, and set the value
	}
	return wanted.value, nil
}

// At returns a value that is not older than a revision; an empty revision stands for any. If the cache has not reached
// the revision, At reads the value from the API server, or returns one that was just read for the revision.
func (c *RevisionCache[T]) At(ctx context.Context, revision string) (T, error) {
	if value, isReached, err := c.cachedFor(ctx, revision); err == nil && isReached {
		return value, nil
	}
	if value, isShared := c.sharedFor(revision); isShared {
		return value, nil
	}
	return c.readFor(ctx, revision)
}

// Remember keeps a value from which webhooks are generated.
func (c *RevisionCache[T]) Remember(value T) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remembered = slices.DeleteFunc(c.remembered, func(r T) bool { return r.Revision() == value.Revision() })
	if len(c.remembered) == maxRemembered {
		c.remembered = slices.Delete(c.remembered, 0, 1)
	}
	c.remembered = append(c.remembered, value)
}

// OfWebhooks returns the last value from which some webhooks were generated, and whether the cache remembers it.
func (c *RevisionCache[T]) OfWebhooks(generatedFrom func(revision string) bool) (value T, isKnown bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, value := range slices.Backward(c.remembered) {
		if generatedFrom(value.Revision()) {
			return value, true
		}
	}
	return value, false
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
