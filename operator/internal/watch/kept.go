package watch

import (
	"context"
	"sync/atomic"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Kept is the transform of a cache that keeps the object it has if the API server sends it again unchanged. After a
// restart of the API server, everything is listed again: otherwise each object would be in memory twice, in all
// replicas at the same time. Before Follow, it is Reduce.
type Kept struct {
	// Reduce is the transform of objects that the cache does not have.
	Reduce toolscache.TransformFunc

	known atomic.Pointer[toolscache.Store]
}

// Follow has the transform know the objects that a cache has of a kind.
func (k *Kept) Follow(ctx context.Context, cached cache.Cache, kind client.Object) error {
	informer, err := informerOf(ctx, cached, kind)
	if err != nil {
		return err
	}
	k.know(informer.GetStore())
	return nil
}

func (k *Kept) know(objects toolscache.Store) { k.known.Store(&objects) }

// Transform is a cache.TransformFunc.
func (k *Kept) Transform(object any) (any, error) {
	if known := k.known.Load(); known != nil {
		if present, exists, err := (*known).Get(object); err == nil && exists && isSame(present, object) {
			return present, nil
		}
	}
	return k.Reduce(object)
}

// isSame reports whether two objects of a name are the same in the same version.
func isSame(a, b any) bool {
	first, err := apimeta.Accessor(a)
	if err != nil {
		return false
	}
	second, err := apimeta.Accessor(b)
	return err == nil && first.GetUID() == second.GetUID() && first.GetResourceVersion() == second.GetResourceVersion()
}
