package constraint

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// constraintCache provides the constraints of the cluster, defaulted and in the order in which scc.Review tries them.
type constraintCache struct {
	cached client.Reader
	// changes notifies after the cached constraints changed.
	changes webhook.Changes

	mu sync.Mutex
	// sorted are the cached constraints, or nil after a change.
	sorted []*v1alpha1.SecurityContextConstraints
}

func newConstraintCache(ctx context.Context, cached cache.Cache) (*constraintCache, error) {
	c := &constraintCache{cached: cached}
	return c, watch.OnChange(ctx, cached, &v1alpha1.SecurityContextConstraints{}, c.reset)
}

func (c *constraintCache) reset(_, _ *v1alpha1.SecurityContextConstraints) {
	c.mu.Lock()
	c.sorted = nil
	c.mu.Unlock()
	c.changes.Notify()
}

// get returns the constraints. Callers must not change them.
func (c *constraintCache) get(ctx context.Context) ([]*v1alpha1.SecurityContextConstraints, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sorted != nil {
		return c.sorted, nil
	}
	sorted, err := readConstraints(ctx, c.cached, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	c.sorted = sorted
	return sorted, nil
}

// getOrLive returns the constraints. If the cache has none, it reads them from the API server: the cache may not have
// the first constraint yet because of which the API server sends requests.
func (c *constraintCache) getOrLive(
	ctx context.Context, live client.Reader,
) ([]*v1alpha1.SecurityContextConstraints, error) {
	if cached, err := c.get(ctx); err == nil && len(cached) > 0 {
		return cached, nil
	}
	return readConstraints(ctx, live)
}

func readConstraints(
	ctx context.Context, from client.Reader, options ...client.ListOption,
) ([]*v1alpha1.SecurityContextConstraints, error) {
	list := &v1alpha1.SecurityContextConstraintsList{}
	if err := from.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("list SecurityContextConstraints: %w", err)
	}
	sorted := make([]*v1alpha1.SecurityContextConstraints, 0, len(list.Items))
	for i := range list.Items {
		sorted = append(sorted, scc.Defaulted(&list.Items[i]))
	}
	scc.Sort(sorted)
	return sorted, nil
}
