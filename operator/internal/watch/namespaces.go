package watch

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Namespaces returns the informer of the cached namespaces. Its index has the objects of the cache itself, which
// callers must not change. The cache's own List copies each of them.
func Namespaces(ctx context.Context, cached cache.Cache) (toolscache.SharedIndexInformer, error) {
	return informerOf(ctx, cached, &corev1.Namespace{})
}

func informerOf(
	ctx context.Context, cached cache.Cache, kind client.Object,
) (toolscache.SharedIndexInformer, error) {
	informer, err := cached.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	shared, isShared := informer.(toolscache.SharedIndexInformer)
	if !isShared {
		return nil, fmt.Errorf("the informer of %T is a %T, which has no index", kind, informer)
	}
	return shared, nil
}

// NewNamespaceLister returns a lister of the cached namespaces, which callers must not change.
func NewNamespaceLister(ctx context.Context, cached cache.Cache) (corev1listers.NamespaceLister, error) {
	informer, err := Namespaces(ctx, cached)
	if err != nil {
		return nil, err
	}
	return corev1listers.NewNamespaceLister(informer.GetIndexer()), nil
}
