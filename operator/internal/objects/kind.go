package objects

import (
	"context"
	"fmt"
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

const byTemplate = "template"

// kind watches the populated objects of one kind, or those that no template populated.
type kind struct {
	mapping  *meta.RESTMapping
	reducer  *reducer
	informer cache.SharedIndexInformer
	changed  func(namespace string)
	synced   cache.ResourceEventHandlerRegistration

	mu sync.Mutex
	// recent holds, by namespace and name, what this process wrote and the watch may not have told yet.
	recent map[types.NamespacedName]*metav1.PartialObjectMetadata
	// gone holds what this process deleted and the watch has not told yet.
	gone map[types.UID]struct{}
	// lost holds, by namespace and name, what others deleted or took the label from, as it was last.
	lost map[string]map[string]*metav1.PartialObjectMetadata
}

func newKind(client metadata.Interface, mapping *meta.RESTMapping, selector string, changed func(namespace string)) *kind {
	k := &kind{
		mapping: mapping,
		reducer: newReducer(mapping.GroupVersionKind),
		changed: changed,
		recent:  map[types.NamespacedName]*metav1.PartialObjectMetadata{},
		gone:    map[types.UID]struct{}{},
		lost:    map[string]map[string]*metav1.PartialObjectMetadata{},
		informer: metadatainformer.NewFilteredMetadataInformer(client, mapping.Resource, metav1.NamespaceAll, 0,
			cache.Indexers{
				cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
				byTemplate: func(object any) ([]string, error) {
					return []string{object.(*metav1.PartialObjectMetadata).Labels[v1alpha1.TemplateNameLabel]}, nil
				},
			},
			func(options *metav1.ListOptions) { options.LabelSelector = selector }).Informer(),
	}
	// Neither fails before the informer runs.
	_ = k.informer.SetTransform(k.reducer.reduce)
	k.synced, _ = k.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			// Every namespace is looked at when the operator starts: the first list tells nothing new.
			if !initial {
				k.added(object.(*metav1.PartialObjectMetadata))
			}
		},
		UpdateFunc: func(old, object any) {
			k.updated(old.(*metav1.PartialObjectMetadata), object.(*metav1.PartialObjectMetadata))
		},
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			k.removed(object.(*metav1.PartialObjectMetadata))
		},
	})
	return k
}

// wait returns when the first list has come.
func (k *kind) wait(ctx context.Context) error {
	if cache.WaitForCacheSync(ctx.Done(), k.synced.HasSynced) {
		return nil
	}
	return fmt.Errorf("the first list of %s has not come yet", k.mapping.Resource.GroupResource())
}

func (k *kind) added(object *metav1.PartialObjectMetadata) {
	if !k.own(object) {
		k.changed(object.Namespace)
	}
}

// updated tells of changes that can be drift. Those of fields that no template declares, of the status above all, leave
// what this project owns as it was.
func (k *kind) updated(old, object *metav1.PartialObjectMetadata) {
	if k.own(object) || sameClaim(old, object) {
		return
	}
	k.changed(object.Namespace)
}

func (k *kind) removed(object *metav1.PartialObjectMetadata) {
	k.mu.Lock()
	_, own := k.gone[object.UID]
	delete(k.gone, object.UID)
	delete(k.recent, types.NamespacedName{Namespace: object.Namespace, Name: object.Name})
	if !own && populate.Ours(object) {
		if k.lost[object.Namespace] == nil {
			k.lost[object.Namespace] = map[string]*metav1.PartialObjectMetadata{}
		}
		k.lost[object.Namespace][object.Name] = object
	}
	k.mu.Unlock()
	if !own {
		k.changed(object.Namespace)
	}
}

// own tells whether the watch tells of a write of this process.
func (k *kind) own(object *metav1.PartialObjectMetadata) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	written := k.recent[types.NamespacedName{Namespace: object.Namespace, Name: object.Name}]
	return written != nil && written.ResourceVersion == object.ResourceVersion
}

func (k *kind) wrote(namespace string, object *metav1.PartialObjectMetadata) {
	reduced := k.reducer.metadata(object)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recent[types.NamespacedName{Namespace: namespace, Name: object.Name}] = reduced
	delete(k.lost[namespace], object.Name)
}

// forget drops what is known of lost objects in a namespace.
func (k *kind) forget(namespace string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lost, namespace)
}

// lostIn returns the objects that were lost in a namespace.
func (k *kind) lostIn(namespace string) map[string]*metav1.PartialObjectMetadata {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.lost[namespace])
}

func (k *kind) deleted(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.gone[uid] = struct{}{}
}

// in returns the objects in a namespace, this process's own latest writes included.
func (k *kind) in(namespace string) []*metav1.PartialObjectMetadata {
	// Read first: what the store has seen by then, it also returns.
	upTo := k.informer.GetIndexer().LastStoreSyncResourceVersion()
	cached, _ := k.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	k.mu.Lock()
	defer k.mu.Unlock()
	var objects []*metav1.PartialObjectMetadata
	for _, item := range cached {
		object := item.(*metav1.PartialObjectMetadata)
		if _, gone := k.gone[object.UID]; gone {
			continue
		}
		key := types.NamespacedName{Namespace: namespace, Name: object.Name}
		if written := k.recent[key]; written != nil && !atLeast(object.ResourceVersion, written.ResourceVersion) {
			object = written
		}
		objects = append(objects, object)
	}
	for key, written := range k.recent {
		if atLeast(upTo, written.ResourceVersion) {
			delete(k.recent, key)
			continue
		}
		if key.Namespace == namespace && !contains(objects, key.Name) {
			objects = append(objects, written)
		}
	}
	return objects
}

// of returns the objects that carry a template's label.
func (k *kind) of(template string) []*metav1.PartialObjectMetadata {
	cached, _ := k.informer.GetIndexer().ByIndex(byTemplate, template)
	objects := make([]*metav1.PartialObjectMetadata, 0, len(cached))
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, item := range cached {
		object := item.(*metav1.PartialObjectMetadata)
		if _, gone := k.gone[object.UID]; !gone {
			objects = append(objects, object)
		}
	}
	return objects
}

func contains(objects []*metav1.PartialObjectMetadata, name string) bool {
	for _, object := range objects {
		if object.Name == name {
			return true
		}
	}
	return false
}

// atLeast tells whether a resource version is not older than another. One that can't be read is taken as older.
func atLeast(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order >= 0
}
