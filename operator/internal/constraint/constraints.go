package constraint

import (
	"context"
	"fmt"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/scc"
)

// constraints are those of the cache, defaulted and in the order in which they are tried.
type constraints struct {
	cached  client.Reader
	changes webhook.Changes

	mu sync.Mutex
	// known is nil if something changed since.
	known []*v1alpha1.SecurityContextConstraints
}

func newConstraints(ctx context.Context, cached cache.Cache) (*constraints, error) {
	c := &constraints{cached: cached}
	informer, err := cached.GetInformer(ctx, &v1alpha1.SecurityContextConstraints{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) {
			c.change()
		}, UpdateFunc: func(_, _ any) { c.change() }, DeleteFunc: func(any) { c.change() },
	})
	return c, err
}

func (c *constraints) change() {
	c.mu.Lock()
	c.known = nil
	c.mu.Unlock()
	c.changes.Notify()
}

// get returns the constraints, which are not to be changed.
func (c *constraints) get(ctx context.Context) ([]*v1alpha1.SecurityContextConstraints, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known != nil {
		return c.known, nil
	}
	known, err := readConstraints(ctx, c.cached, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, err
	}
	c.known = known
	return known, nil
}

// orLive is sure that there are none where the cache has none: the API server may know of the first one sooner.
func (c *constraints) orLive(ctx context.Context, live client.Reader) ([]*v1alpha1.SecurityContextConstraints, error) {
	if known, err := c.get(ctx); err == nil && len(known) > 0 {
		return known, nil
	}
	return readConstraints(ctx, live)
}

func readConstraints(
	ctx context.Context, from client.Reader, options ...client.ListOption,
) ([]*v1alpha1.SecurityContextConstraints, error) {
	list := &v1alpha1.SecurityContextConstraintsList{}
	if err := from.List(ctx, list, options...); err != nil {
		return nil, fmt.Errorf("read SecurityContextConstraints: %w", err)
	}
	found := make([]*v1alpha1.SecurityContextConstraints, 0, len(list.Items))
	for i := range list.Items {
		found = append(found, scc.Defaulted(&list.Items[i]))
	}
	scc.Sort(found)
	return found, nil
}
