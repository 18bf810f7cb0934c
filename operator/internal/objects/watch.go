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
	"nstpl.dev/nstpl/operator/freshness"
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

// Transformer returns the function that reduces the objects of a list before all of it has arrived. It returns the item
// of an object that has not changed, so that a list of everything, after a restart of the API server, takes no memory.
func (k *kind) Transformer() cache.TransformFunc {
	return func(object any) (any, error) {
		k.extendDeadline()
		if full, ok := object.(*metav1.PartialObjectMetadata); ok {
			if known := k.unchanged(full); known != nil {
				return known, nil
			}
		}
		return k.reduced(object), nil
	}
}

// unchanged returns the item of an object if it has the version that arrived, or nil.
func (k *kind) unchanged(full *metav1.PartialObjectMetadata) *populate.Reduced {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, exists := k.items.find(full.Namespace, full.Name)
	if !exists {
		return nil
	}
	known := k.items.byNamespace[full.Namespace][at]
	if known.UID != full.UID || known.ResourceVersion != full.ResourceVersion {
		return nil
	}
	return known
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
	isChanged := k.delivered(k.items.put(reduced), reduced)
	k.written.UpTo(reduced.ResourceVersion)
	k.mu.Unlock()
	if isChanged {
		k.changed(reduced.Namespace)
	}
	return nil
}

// Delete removes an object that was deleted, or that the label selector no longer selects.
func (k *kind) Delete(object any) error {
	reduced := k.reduced(object)
	k.mu.Lock()
	k.items.remove(reduced.Namespace, reduced.Name)
	isChanged := k.removed(reduced)
	k.written.UpTo(reduced.ResourceVersion)
	k.mu.Unlock()
	if isChanged {
		k.changed(reduced.Namespace)
	}
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
	changed := k.replace(listed, version, isFirst)
	k.answered()
	if isFirst {
		close(k.arrived)
	}
	for _, namespace := range changed {
		k.changed(namespace)
	}
	return nil
}

// replace replaces the items, and returns the namespaces that are to be reconciled: none for the first list.
func (k *kind) replace(listed []*populate.Reduced, version string, isFirst bool) (changed []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, i := range k.items.except(listed) {
		k.items.remove(i.Namespace, i.Name)
		if k.removed(i) {
			changed = append(changed, i.Namespace)
		}
	}
	for _, i := range listed {
		old := k.items.put(i)
		if !isFirst && (old == nil || old.ResourceVersion != i.ResourceVersion) && k.delivered(old, i) {
			changed = append(changed, i.Namespace)
		}
	}
	for _, unlisted := range k.unlisted(listed, version) {
		if k.removed(unlisted) {
			changed = append(changed, unlisted.Namespace)
		}
	}
	k.written.UpTo(version)
	return changed
}

// unlisted returns the objects that this process wrote before a list that lacks them: other clients deleted them while
// no watch ran. The caller holds the lock.
func (k *kind) unlisted(listed []*populate.Reduced, version string) []*populate.Reduced {
	isListed := make(map[types.NamespacedName]bool, len(listed))
	for _, i := range listed {
		isListed[types.NamespacedName{Namespace: i.Namespace, Name: i.Name}] = true
	}
	var unlisted []*populate.Reduced
	for key, written := range k.written.Unobserved() {
		if !isListed[key] && !freshness.Newer(written.ResourceVersion, version) {
			unlisted = append(unlisted, k.reducer.Reduce(written))
		}
	}
	return unlisted
}

// Bookmark records that the watch has delivered everything up to a resource version.
func (k *kind) Bookmark(version string) error {
	k.written.UpTo(version)
	return nil
}

// Resync does nothing.
func (k *kind) Resync() error { return nil }
