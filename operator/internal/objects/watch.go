package objects

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// A kind is the store of its reflector. An informer of client-go would keep each object's metadata under three string
// keys, which takes more memory than an item.
var (
	_ cache.TransformingStore      = &kind{}
	_ cache.ReflectorBookmarkStore = &kind{}
)

// listerWatcher lists and watches the metadata of the objects that a label selector selects, and records errors.
func (k *kind) listerWatcher(client metadata.Interface, selector string) cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = selector
			list, err := client.Resource(k.mapping.Resource).List(ctx, options)
			k.recordError(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = selector
			events, err := client.Resource(k.mapping.Resource).Watch(ctx, options)
			k.recordError(err)
			return events, err
		},
	}, client)
}

// Transformer returns the function that reduces the objects of a list before all of it has arrived.
func (k *kind) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		k.extendDeadline()
		return k.reduced(object), nil
	}
}

// reduced returns the item of an object, which may have been reduced before.
func (k *kind) reduced(object any) *populate.Reduced {
	if reduced, ok := object.(*populate.Reduced); ok {
		return reduced
	}
	return k.reducer.Reduce(object.(*metav1.PartialObjectMetadata))
}

// Add stores an object that was created.
func (k *kind) Add(object any) error { return k.Update(object) }

// Update stores an object that was created or changed.
func (k *kind) Update(object any) error {
	reduced := k.reduced(object)
	k.mu.Lock()
	old := k.items.put(reduced)
	k.upTo = reduced.ResourceVersion
	k.mu.Unlock()
	k.stored(old, reduced)
	return nil
}

// stored handles an item that was stored, in place of an old one unless that is nil.
func (k *kind) stored(old, reduced *populate.Reduced) {
	object := reduced.Metadata(k.typeMeta)
	if old == nil {
		k.added(object)
	} else {
		k.updated(old.Metadata(k.typeMeta), object)
	}
}

// Delete removes an object that was deleted, or that the label selector no longer selects.
func (k *kind) Delete(object any) error {
	reduced := k.reduced(object)
	k.mu.Lock()
	k.items.remove(reduced.Namespace, reduced.Name)
	k.upTo = reduced.ResourceVersion
	k.mu.Unlock()
	k.removed(reduced.Metadata(k.typeMeta))
	return nil
}

// Replace stores what a list returned. The first list is not handled as changes, since every namespace is reconciled
// when the operator starts.
func (k *kind) Replace(list []any, version string) error {
	listed := make([]*populate.Reduced, 0, len(list))
	for _, object := range list {
		listed = append(listed, k.reduced(object))
	}
	isFirst := !k.hasArrived()
	replaced := make([]*populate.Reduced, len(listed))
	k.mu.Lock()
	gone := k.items.except(listed)
	for _, i := range gone {
		k.items.remove(i.Namespace, i.Name)
	}
	for at, i := range listed {
		replaced[at] = k.items.put(i)
	}
	k.upTo = version
	k.mu.Unlock()
	if isFirst {
		close(k.arrived)
		return nil
	}
	for _, i := range gone {
		k.removed(i.Metadata(k.typeMeta))
	}
	for at, i := range listed {
		if old := replaced[at]; old == nil || old.ResourceVersion != i.ResourceVersion {
			k.stored(old, i)
		}
	}
	return nil
}

// Bookmark records that the watch has delivered everything up to a resource version.
func (k *kind) Bookmark(version string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.upTo = version
	return nil
}

// Resync does nothing.
func (k *kind) Resync() error { return nil }
