package objects

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

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
	// due ends when the first list should have come, and overdue ends it.
	due     context.Context //nolint:containedctx // a deadline, which several wait for
	overdue context.CancelFunc

	mu sync.Mutex
	// refusal is the latest error of the informer.
	refusal error
	// recent holds, by namespace and name, what this process wrote and the watch may not have delivered yet.
	recent map[types.NamespacedName]*metav1.PartialObjectMetadata
	// gone holds objects that this process deleted while the watch still shows them.
	gone map[types.UID]struct{}
	// leaving holds objects that a running plan may delete, so that their deletion is not attributed to another client.
	// The value is true once the watch has delivered the deletion.
	leaving map[types.UID]bool
	// unanswered holds objects whose deletion this process asked for without learning what became of it. The next apply
	// takes the object out. A plan that keeps it does not: it may be made before the watch delivers the deletion.
	unanswered map[types.UID]struct{}
	// rewritten holds, by UID, the latest state at which this project's managedFields entry was written by a request
	// that is not known to be an apply of this process. Metadata does not show what changed in such an object.
	rewritten map[types.UID]rewrite
	// written holds, by UID, the resource version of the latest apply of this process, until the handlers below have
	// seen it. They run later than the informer's store is up to date.
	written map[types.UID]string
	// unsure holds, by namespace and name, applies of this process whose answer was lost.
	unsure map[types.NamespacedName]struct{}
	// lost holds, by namespace and name, objects that another client deleted or took the label from, as they were last.
	lost map[string]map[string]*metav1.PartialObjectMetadata
}

// rewrite is the state of an object of which another client may have written this project's managedFields entry.
type rewrite struct {
	object  types.NamespacedName
	version string
}

func newKind(
	client metadata.Interface, mapping *meta.RESTMapping, selector string, changed func(namespace string),
) *kind {
	k := &kind{
		mapping:    mapping,
		reducer:    newReducer(mapping.GroupVersionKind),
		changed:    changed,
		recent:     map[types.NamespacedName]*metav1.PartialObjectMetadata{},
		gone:       map[types.UID]struct{}{},
		leaving:    map[types.UID]bool{},
		unanswered: map[types.UID]struct{}{},
		rewritten:  map[types.UID]rewrite{},
		written:    map[types.UID]string{},
		unsure:     map[types.NamespacedName]struct{}{},
		lost:       map[string]map[string]*metav1.PartialObjectMetadata{},
		informer: metadatainformer.NewFilteredMetadataInformer(client, mapping.Resource, metav1.NamespaceAll, 0,
			cache.Indexers{
				cache.NamespaceIndex: cache.MetaNamespaceIndexFunc,
				byTemplate: func(object any) ([]string, error) {
					return []string{object.(*metav1.PartialObjectMetadata).Labels[v1alpha1.TemplateNameLabel]}, nil
				},
			},
			func(options *metav1.ListOptions) { options.LabelSelector = selector }).Informer(),
	}
	// None of these fails before the informer runs.
	_ = k.informer.SetTransform(k.reducer.reduce)
	_ = k.informer.SetWatchErrorHandlerWithContext(func(ctx context.Context, r *cache.Reflector, err error) {
		k.refused(err)
		cache.DefaultWatchErrorHandler(ctx, r, err)
	})
	k.synced, _ = k.informer.AddEventHandler(cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, initial bool) {
			// Every namespace is reconciled when the operator starts, so the first list needs no events.
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

// start lets the informer run until ctx ends.
func (k *kind) start(ctx context.Context) {
	k.due, k.overdue = context.WithTimeout(ctx, listTimeout)
	go func() {
		k.informer.RunWithContext(ctx)
		k.overdue()
	}()
}

// refused records an error of the informer. The first one says that the kind may be broken: little more time is left.
func (k *kind) refused(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refusal == nil && !k.synced.HasSynced() {
		time.AfterFunc(refusedTimeout, k.overdue)
	}
	k.refusal = err
}

// listed returns nil if the first list has come, ErrPending if it may come soon, or why it has not.
func (k *kind) listed() error {
	resource := k.mapping.Resource.GroupResource()
	if k.synced.HasSynced() {
		return nil
	}
	if k.due.Err() == nil {
		return fmt.Errorf("%s: %w", resource, ErrPending)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refusal != nil {
		return fmt.Errorf("%s can't be listed: %w", resource, k.refusal)
	}
	return fmt.Errorf("the list of %s has not come within %s", resource, listTimeout)
}

// wait returns when the first list is not pending any more. The error is that of ctx.
func (k *kind) wait(ctx context.Context) error {
	select {
	case <-k.synced.HasSyncedChecker().Done():
	case <-k.due.Done():
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (k *kind) added(object *metav1.PartialObjectMetadata) {
	if k.own(object) {
		return
	}
	if populate.Rewritten(&metav1.PartialObjectMetadata{}, object) {
		k.rewrittenBy(object)
	}
	k.changed(object.Namespace)
}

// updated queues the namespace if the change can be drift. A change of a field that no template declares, such as a
// status, leaves this project's managedFields entry as it was.
func (k *kind) updated(old, object *metav1.PartialObjectMetadata) {
	if k.own(object) || sameClaim(old, object) {
		return
	}
	if populate.Rewritten(old, object) {
		k.rewrittenBy(object)
	}
	k.changed(object.Namespace)
}

// rewrittenBy records that the watch shows an apply in the name of this project. If it is an apply of this process
// whose answer has not arrived yet, wrote takes the record back.
func (k *kind) rewrittenBy(object *metav1.PartialObjectMetadata) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, unsure := k.unsure[keyOf(object)]; !unsure {
		k.rewritten[object.UID] = rewrite{keyOf(object), object.ResourceVersion}
	}
}

// tampered reports whether another client wrote this project's managedFields entry of an object since the last apply.
func (k *kind) tampered(object *metav1.PartialObjectMetadata) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, tampered := k.rewritten[object.UID]
	return tampered
}

func keyOf(object *metav1.PartialObjectMetadata) types.NamespacedName {
	return types.NamespacedName{Namespace: object.Namespace, Name: object.Name}
}

func (k *kind) removed(object *metav1.PartialObjectMetadata) {
	k.mu.Lock()
	_, own := k.gone[object.UID]
	_, leaving := k.leaving[object.UID]
	_, asked := k.unanswered[object.UID]
	if leaving {
		k.leaving[object.UID] = true
	}
	delete(k.gone, object.UID)
	delete(k.unanswered, object.UID)
	delete(k.rewritten, object.UID)
	delete(k.written, object.UID)
	delete(k.recent, keyOf(object))
	if !own && !leaving && !asked && populate.Ours(object) {
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

// own reports whether the watch delivers a write of this process.
func (k *kind) own(object *metav1.PartialObjectMetadata) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	version, written := k.written[object.UID]
	if !written || !atLeast(object.ResourceVersion, version) {
		return written // an older state than that of the latest apply says nothing new
	}
	delete(k.written, object.UID)
	return object.ResourceVersion == version
}

func (k *kind) wrote(namespace string, object *metav1.PartialObjectMetadata) {
	reduced := k.reducer.metadata(object)
	k.mu.Lock()
	defer k.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: object.Name}
	k.recent[key] = reduced
	delete(k.unsure, key)
	delete(k.lost[namespace], object.Name)
	delete(k.unanswered, object.UID)
	seen, ok := k.rewritten[object.UID]
	if !ok || seen.version != object.ResourceVersion {
		k.written[object.UID] = object.ResourceVersion
	}
	if atLeast(object.ResourceVersion, seen.version) {
		delete(k.rewritten, object.UID)
	}
}

// answerLost records an apply of which it is not known whether the API server carried it out. The watch may have
// delivered it already.
func (k *kind) answerLost(namespace, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	k.unsure[key] = struct{}{}
	maps.DeleteFunc(k.rewritten, func(_ types.UID, r rewrite) bool { return r.object == key })
}

// leave records whether the plan that starts may delete an object.
func (k *kind) leave(uid types.UID, may bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if may {
		k.leaving[uid] = false
	}
}

// stay records that the plan that might have deleted an object has ended.
func (k *kind) stay(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.leaving, uid)
}

// maybeDeleted records that this process asked for the deletion of an object and got no answer. The watch may have
// delivered the deletion already.
func (k *kind) maybeDeleted(object *metav1.PartialObjectMetadata) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.leaving[object.UID] {
		k.unanswered[object.UID] = struct{}{}
	}
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

// deleted records that this process deleted an object. The watch may have delivered that already.
func (k *kind) deleted(object *metav1.PartialObjectMetadata) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if written := k.recent[keyOf(object)]; written != nil && written.UID == object.UID {
		delete(k.recent, keyOf(object))
	}
	if !k.leaving[object.UID] {
		k.gone[object.UID] = struct{}{}
	}
}

// isGone reports whether this process deleted an object. One that the watch shows as being deleted is kept by a
// finalizer, and still exists. It is called with the lock held.
func (k *kind) isGone(object *metav1.PartialObjectMetadata) bool {
	_, gone := k.gone[object.UID]
	return gone && object.DeletionTimestamp == nil
}

// in returns the objects in a namespace, including the latest writes of this process.
func (k *kind) in(namespace string) []*metav1.PartialObjectMetadata {
	// Read first: what the store has seen by then, it also returns.
	upTo := k.informer.GetIndexer().LastStoreSyncResourceVersion()
	cached, _ := k.informer.GetIndexer().ByIndex(cache.NamespaceIndex, namespace)
	k.mu.Lock()
	defer k.mu.Unlock()
	var objects []*metav1.PartialObjectMetadata
	for _, item := range cached {
		object := item.(*metav1.PartialObjectMetadata)
		if k.isGone(object) {
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
		if object := item.(*metav1.PartialObjectMetadata); !k.isGone(object) {
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

// atLeast reports whether a resource version is not older than another. One that can't be read is taken as older.
func atLeast(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order >= 0
}
