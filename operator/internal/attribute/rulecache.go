package attribute

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// maxReached is the number of revisions that a RuleCache remembers. A revision that it has dropped costs one read.
const maxReached = 1000

// RuleCache provides the rules of the cluster. It follows the informers of a cache.
type RuleCache struct {
	cached, live client.Reader
	// changes notifies after the cached rules changed.
	changes webhook.Changes

	mu sync.Mutex
	// rules are the cached ones, or nil after a change.
	rules *attributes.Rules
	// reached contains the revisions than which the cache is not older.
	reached map[string]bool
}

// newRuleCache returns a cache of the rules that uses the informers of cached. live reads from the API server.
func newRuleCache(ctx context.Context, cached cache.Cache, live client.Reader) (*RuleCache, error) {
	c := &RuleCache{cached: cached, live: live, reached: map[string]bool{}}
	for _, kind := range []client.Object{&v1alpha1.ClusterProtectedAttribute{}, &v1alpha1.ProtectedAttribute{}} {
		informer, err := cached.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(any) { c.reset() },
			UpdateFunc: func(old, updated any) {
				if before, now := old.(client.Object), updated.(client.Object); before.GetUID() != now.GetUID() ||
					before.GetGeneration() != now.GetGeneration() {
					c.reset()
				}
			},
			DeleteFunc: func(any) { c.reset() },
		}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *RuleCache) reset() {
	c.mu.Lock()
	c.rules = nil
	c.mu.Unlock()
	c.changes.Notify()
}

// Cached returns the rules of the cache.
func (c *RuleCache) Cached(ctx context.Context) (*attributes.Rules, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rules != nil {
		return c.rules, nil
	}
	rules, err := readRules(ctx, c.cached, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	c.rules = rules
	c.addReached(rules.Revision())
	return rules, nil
}

// addReached requires that the caller holds the lock.
func (c *RuleCache) addReached(revision string) {
	if len(c.reached) >= maxReached {
		clear(c.reached)
	}
	c.reached[revision] = true
}

// At returns rules that are not older than a revision; an empty revision stands for any. If the cache has not reached
// the revision, At reads the rules from the API server.
func (c *RuleCache) At(ctx context.Context, revision string) (*attributes.Rules, error) {
	cached, err := c.Cached(ctx)
	c.mu.Lock()
	reached := err == nil && (revision == "" || c.reached[revision])
	c.mu.Unlock()
	if reached {
		return cached, nil
	}
	live, err := readRules(ctx, c.live)
	if err != nil {
		return nil, err
	}
	if cached != nil && cached.Revision() == live.Revision() {
		c.mu.Lock()
		c.addReached(revision)
		c.mu.Unlock()
	}
	return live, nil
}

func readRules(ctx context.Context, from client.Reader, options ...client.ListOption) (*attributes.Rules, error) {
	cluster, namespaced := &v1alpha1.ClusterProtectedAttributeList{}, &v1alpha1.ProtectedAttributeList{}
	if err := from.List(ctx, cluster, options...); err != nil {
		return nil, fmt.Errorf("list ClusterProtectedAttributes: %w", err)
	}
	if err := from.List(ctx, namespaced, options...); err != nil {
		return nil, fmt.Errorf("list ProtectedAttributes: %w", err)
	}
	return attributes.NewRules(cluster.Items, namespaced.Items), nil
}
