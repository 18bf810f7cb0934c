package selfservice

import (
	"cmp"
	"context"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/watch"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// rules knows which policy spaces have rules for self-service.
type rules struct {
	// changes notifies when the first policy space gets rules, and when the last one loses them.
	changes webhook.Changes

	mu     sync.Mutex
	spaces map[string]bool
}

func newRules(ctx context.Context, cached cache.Cache) (*rules, error) {
	r := &rules{spaces: map[string]bool{}}
	return r, watch.OnChange(ctx, cached, &v1alpha1.PolicySpace{}, r.update)
}

// update records whether a policy space has rules.
func (r *rules) update(old, space *v1alpha1.PolicySpace) {
	r.mu.Lock()
	before := len(r.spaces)
	if delete(r.spaces, cmp.Or(space, old).Name); space != nil && space.Spec.SelfService != nil {
		r.spaces[space.Name] = true
	}
	changed := (before == 0) != (len(r.spaces) == 0)
	r.mu.Unlock()
	if changed {
		r.changes.Notify()
	}
}

// any reports whether a policy space has rules.
func (r *rules) any() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spaces) > 0
}
