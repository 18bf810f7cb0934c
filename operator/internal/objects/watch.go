package objects

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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

// listerWatcher lists and watches the metadata of the objects that the label selector selects, and records errors.
func (k *kind) listerWatcher() cache.ListerWatcher {
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.LabelSelector = k.selector
			return request(k, func(resource metadata.Getter) (*metav1.PartialObjectMetadataList, error) {
				return resource.List(ctx, o)
			})
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = k.selector
			events, err := request(k, func(resource metadata.Getter) (watch.Interface, error) {
				return resource.Watch(ctx, o)
			})
			// A watch that begins with a list may still fail; Replace is called when it has not.
			if err == nil && o.SendInitialEvents == nil {
				k.answered()
			}
			return events, err
		},
	}, k.client)
}

// request sends a request about the kind, and records why it failed. If the API server no longer serves the version, it
// sends it again in the version that is served now: it has the same objects, with the same UIDs and resource versions.
func request[T any](k *kind, send func(metadata.Getter) (T, error)) (T, error) {
	answer, err := send(k.client.Resource(k.served.Load().resource))
	if apierrors.IsNotFound(err) {
		var mapping *meta.RESTMapping
		if mapping, err = k.remap(); err == nil {
			k.serve(mapping)
			answer, err = send(k.client.Resource(mapping.Resource))
		}
	}
	if err != nil {
		k.recordError(err)
	}
	return answer, err
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
	old := k.before(k.items.put(reduced), reduced)
	k.upTo = reduced.ResourceVersion
	k.mu.Unlock()
	k.stored(old, reduced)
	return nil
}

// before returns the state of an object before the one that the watch delivers: the item that was stored, or what this
// process wrote since, which a list may have together with a later change. The caller holds the lock.
func (k *kind) before(old, delivered *populate.Reduced) *metav1.PartialObjectMetadata {
	written := k.recent[types.NamespacedName{Namespace: delivered.Namespace, Name: delivered.Name}]
	isNewer := written != nil && written.UID == delivered.UID &&
		atLeast(delivered.ResourceVersion, written.ResourceVersion) &&
		(old == nil || !atLeast(old.ResourceVersion, written.ResourceVersion))
	switch {
	case isNewer:
		return written
	case old == nil:
		return nil
	}
	return old.Metadata(k.served.Load().typeMeta)
}

// stored handles an item that was stored, in place of an old state unless that is nil.
func (k *kind) stored(old *metav1.PartialObjectMetadata, reduced *populate.Reduced) {
	object := reduced.Metadata(k.served.Load().typeMeta)
	if old == nil {
		k.added(object)
	} else {
		k.updated(old, object)
	}
}

// Delete removes an object that was deleted, or that the label selector no longer selects.
func (k *kind) Delete(object any) error {
	reduced := k.reduced(object)
	k.mu.Lock()
	k.items.remove(reduced.Namespace, reduced.Name)
	k.upTo = reduced.ResourceVersion
	k.mu.Unlock()
	k.removed(reduced.Metadata(k.served.Load().typeMeta))
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
	replaced := make([]*metav1.PartialObjectMetadata, len(listed))
	k.mu.Lock()
	gone := k.items.except(listed)
	for _, i := range gone {
		k.items.remove(i.Namespace, i.Name)
	}
	for at, i := range listed {
		replaced[at] = k.before(k.items.put(i), i)
	}
	k.upTo = version
	k.mu.Unlock()
	k.answered()
	if isFirst {
		close(k.arrived)
		return nil
	}
	for _, i := range gone {
		k.removed(i.Metadata(k.served.Load().typeMeta))
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
