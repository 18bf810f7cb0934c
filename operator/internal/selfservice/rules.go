package selfservice

import (
	"context"
	"sync"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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
	informer, err := cached.GetInformer(ctx, &v1alpha1.PolicySpace{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { r.update(object, true) },
		UpdateFunc: func(_, object any) { r.update(object, true) },
		DeleteFunc: func(object any) { r.update(object, false) },
	})
	return r, err
}

// update records whether a policy space has rules.
func (r *rules) update(object any, exists bool) {
	if deleted, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = deleted.Obj
	}
	space, ok := object.(*v1alpha1.PolicySpace)
	if !ok {
		return
	}
	r.mu.Lock()
	before := len(r.spaces)
	if delete(r.spaces, space.Name); exists && space.Spec.SelfService != nil {
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
