package objects

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// kind watches the objects of one kind that a label selector selects: those with a template's label, or those without.
type kind struct {
	options
	reducer   populate.Reducer
	reflector *cache.Reflector
	// served is how the API server serves the kind. The version changes when the API server ends to serve it.
	served atomic.Pointer[served]
	// arrived is closed when the first list has arrived.
	arrived chan struct{}
	// listDeadline is done when the first list has timed out, at which time timeout calls endWait.
	listDeadline context.Context //nolint:containedctx // several goroutines wait for this deadline
	endWait      context.CancelFunc
	timeout      *time.Timer
	// silent is closed when nothing has arrived for patience, at which time impatience closes it.
	silent     chan struct{}
	impatience *time.Timer

	mu sync.Mutex
	// lastError is the latest error of a list or a watch.
	lastError error
	// outage runs from the first refusal of a list or a watch until one succeeds, and is nil meanwhile.
	outage *outage
	// items are the objects that the watch has delivered, up to the resource version upTo.
	items items
	upTo  string
	// recent holds, by namespace and name, objects that this process wrote. The watch may not have delivered them yet.
	recent map[types.NamespacedName]*metav1.PartialObjectMetadata
	// ownDeletions holds objects that this process deleted and that the watch still shows.
	ownDeletions map[types.UID]struct{}
	// deletable holds objects that a running plan may delete, so that their deletion is not attributed to another
	// client. The value is true once the watch has delivered the deletion.
	deletable map[types.UID]bool
	// unansweredDeletions holds objects whose deletion this process requested without receiving the answer. The next
	// apply removes the object from the map. A plan without a deletion does not, because the plan may be made before
	// the watch delivers the deletion.
	unansweredDeletions map[types.UID]struct{}
	// rewritten holds, by UID, the latest state in which the managedFields entry of nstpl was written by a request that
	// may not be an apply of this process. Metadata does not show which fields such a request changed.
	rewritten map[types.UID]rewrite
	// written holds, by UID, the resource version of the latest apply of this process, until the event handlers below
	// receive it. They run after items were updated.
	written map[types.UID]string
	// unansweredApplies holds, by namespace and name, objects that this process applied without receiving the answer.
	unansweredApplies map[types.NamespacedName]struct{}
	// lost holds, by namespace and name, the last known metadata of objects that another client deleted, or whose label
	// it removed.
	lost map[string]map[string]*metav1.PartialObjectMetadata
	// former holds the objects of namespaces that have ended, until the watch delivers their deletion.
	former map[types.UID]struct{}
}

// rewrite is a state of an object in which another client may have written the managedFields entry of nstpl.
type rewrite struct {
	object  types.NamespacedName
	version string
}

// options are what a kind needs.
type options struct {
	client   metadata.Interface
	selector string
	// remap asks the API server how it serves the kind. The error is a meta.NoKindMatchError if it does not.
	remap func() (*meta.RESTMapping, error)
	// changed is called with the namespace of each object that another client changed or deleted.
	changed func(namespace string)
	// turned is called when the objects of the kind become unknown after they were known, and when they are known
	// again.
	turned func()
}

func newKind(mapping *meta.RESTMapping, o options) *kind {
	k := &kind{
		options:             o,
		arrived:             make(chan struct{}),
		silent:              make(chan struct{}),
		items:               newItems(),
		recent:              map[types.NamespacedName]*metav1.PartialObjectMetadata{},
		ownDeletions:        map[types.UID]struct{}{},
		deletable:           map[types.UID]bool{},
		unansweredDeletions: map[types.UID]struct{}{},
		rewritten:           map[types.UID]rewrite{},
		written:             map[types.UID]string{},
		unansweredApplies:   map[types.NamespacedName]struct{}{},
		lost:                map[string]map[string]*metav1.PartialObjectMetadata{},
		former:              map[types.UID]struct{}{},
	}
	k.serve(mapping)
	k.reflector = cache.NewReflectorWithOptions(k.listerWatcher(), &metav1.PartialObjectMetadata{}, k,
		cache.ReflectorOptions{Name: mapping.Resource.GroupResource().String(), Backoff: &retries})
	return k
}

// start runs the watch in the background until ctx is done.
func (k *kind) start(ctx context.Context) {
	k.startDeadline(ctx)
	go func() {
		k.reflector.RunWithContext(ctx)
		k.endWait()
	}()
}

func (k *kind) startDeadline(ctx context.Context) {
	k.listDeadline, k.endWait = context.WithCancel(ctx)
	k.timeout = time.AfterFunc(listTimeout, k.endWait)
	k.impatience = time.AfterFunc(patience, sync.OnceFunc(func() { close(k.silent) }))
}

// extendDeadline gives the first list more time, because one of its objects has arrived. A busy API server may take
// longer for 100,000 objects than for an answer.
func (k *kind) extendDeadline() {
	if !k.hasArrived() {
		k.timeout.Reset(listTimeout)
		k.impatience.Reset(patience)
	}
}

// hasArrived reports whether the first list has arrived.
func (k *kind) hasArrived() bool {
	select {
	case <-k.arrived:
		return true
	default:
		return false
	}
}

// recordError stores an error of a list or a watch. After the first error, the first list has only failedTimeout left.
func (k *kind) recordError(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.hasArrived() && k.lastError == nil {
		time.AfterFunc(failedTimeout, k.endWait)
	}
	if k.hasArrived() {
		k.refuse(err)
	}
	k.lastError = err
}

// listed returns nil if the objects of the kind are known, ErrPending if the first list has not timed out yet, or why
// the objects are unknown.
func (k *kind) listed() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	resource := k.served.Load().resource.GroupResource()
	switch {
	case k.hasArrived() && k.outage == nil, k.hasArrived() && !k.outage.isLong:
		return nil
	case k.hasArrived():
		return fmt.Errorf("%s can no longer be listed: %w", resource, k.lastError)
	case k.listDeadline.Err() == nil:
		return fmt.Errorf("%s: %w", resource, ErrPending)
	case k.lastError != nil:
		return fmt.Errorf("%s can't be listed: %w", resource, k.lastError)
	}
	return fmt.Errorf("the list of %s is incomplete, and nothing of it arrived within %s", resource, listTimeout)
}

// wait returns when the first list has arrived or timed out, when nothing of it has arrived for patience, or the error
// of ctx.
func (k *kind) wait(ctx context.Context) error {
	select {
	case <-k.arrived:
	case <-k.listDeadline.Done():
	case <-k.silent:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

func (k *kind) added(object *metav1.PartialObjectMetadata) {
	if !k.isOwnWrite(object, populate.Rewritten(&metav1.PartialObjectMetadata{}, object)) {
		k.changed(object.Namespace)
	}
}

// updated queues the namespace if the change can be drift. A change of a field that no template declares, such as a
// status, does not change the managedFields entry of nstpl.
func (k *kind) updated(old, object *metav1.PartialObjectMetadata) {
	isSame := sameRecord(old, object)
	if !k.isOwnWrite(object, !isSame && populate.Rewritten(old, object)) && !isSame {
		k.changed(object.Namespace)
	}
}

// tampered reports whether another client wrote the managedFields entry of nstpl on an object since the last apply.
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
	_, isOwn := k.ownDeletions[object.UID]
	_, isDeletable := k.deletable[object.UID]
	_, isUnanswered := k.unansweredDeletions[object.UID]
	_, isFormer := k.former[object.UID]
	if isDeletable {
		k.deletable[object.UID] = true
	}
	delete(k.ownDeletions, object.UID)
	delete(k.unansweredDeletions, object.UID)
	delete(k.former, object.UID)
	delete(k.rewritten, object.UID)
	delete(k.written, object.UID)
	// The object may be the predecessor of one that this process has created since by the same name.
	if written := k.recent[keyOf(object)]; written != nil && written.UID == object.UID &&
		atLeast(object.ResourceVersion, written.ResourceVersion) {
		delete(k.recent, keyOf(object))
	}
	if !isOwn && !isDeletable && !isUnanswered && !isFormer && populate.Ours(object) {
		if k.lost[object.Namespace] == nil {
			k.lost[object.Namespace] = map[string]*metav1.PartialObjectMetadata{}
		}
		k.lost[object.Namespace][object.Name] = object
	}
	k.mu.Unlock()
	if !isOwn {
		k.changed(object.Namespace)
	}
}

// isOwnWrite reports whether a state that the watch delivers is from a write of this process. If it is not, and the
// managedFields entry of nstpl was rewritten, the state is recorded as that of another client. If this process wrote it
// and the answer has not arrived yet, wrote removes the record later. Both are one step: the answer may arrive at any
// time.
func (k *kind) isOwnWrite(object *metav1.PartialObjectMetadata, rewritten bool) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if version, written := k.written[object.UID]; written {
		if !atLeast(object.ResourceVersion, version) {
			return true // a state before the latest apply is not relevant anymore
		}
		delete(k.written, object.UID)
		if object.ResourceVersion == version {
			return true
		}
	}
	if _, isUnanswered := k.unansweredApplies[keyOf(object)]; rewritten && !isUnanswered {
		k.rewritten[object.UID] = rewrite{keyOf(object), object.ResourceVersion}
	}
	return false
}

// wrote records an object that this process applied. The watch may have delivered it already.
func (k *kind) wrote(namespace string, object *metav1.PartialObjectMetadata) {
	reduced := k.reducer.Reduce(object).Metadata(k.served.Load().typeMeta)
	k.mu.Lock()
	defer k.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: object.Name}
	k.recent[key] = reduced
	delete(k.unansweredApplies, key)
	delete(k.lost[namespace], object.Name)
	delete(k.unansweredDeletions, object.UID)
	delivered, ok := k.rewritten[object.UID]
	if !ok || delivered.version != object.ResourceVersion {
		k.written[object.UID] = object.ResourceVersion
	}
	if atLeast(object.ResourceVersion, delivered.version) {
		delete(k.rewritten, object.UID)
	}
}

// answerLost records an apply without an answer, so that it is unknown whether the API server carried it out. The watch
// may have delivered it already.
func (k *kind) answerLost(namespace, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	k.unansweredApplies[key] = struct{}{}
	maps.DeleteFunc(k.rewritten, func(_ types.UID, r rewrite) bool { return r.object == key })
}

// expectDeletion records that a plan that is about to be applied may delete an object.
func (k *kind) expectDeletion(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.deletable[uid] = false
}

// planEnded records that a plan that might have deleted an object was applied.
func (k *kind) planEnded(uid types.UID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.deletable, uid)
}

// maybeDeleted records that this process requested the deletion of an object and received no answer. The watch may have
// delivered the deletion already.
func (k *kind) maybeDeleted(object *metav1.PartialObjectMetadata) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.deletable[object.UID] {
		k.unansweredDeletions[object.UID] = struct{}{}
	}
}

// forget drops the lost objects of a namespace.
func (k *kind) forget(namespace string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lost, namespace)
}

// namespaceEnded drops the lost objects of a namespace that has ended. The objects that the watch still shows in it
// will be deleted, and not by another client. Those that this process has written since may be in a new namespace of
// the same name.
func (k *kind) namespaceEnded(namespace string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lost, namespace)
	for _, item := range k.items.byNamespace[namespace] {
		written := k.recent[types.NamespacedName{Namespace: namespace, Name: item.Name}]
		if written == nil || written.UID != item.UID {
			k.former[item.UID] = struct{}{}
		}
	}
}

// lostIn returns the lost objects of a namespace, by name.
func (k *kind) lostIn(namespace string) map[string]*metav1.PartialObjectMetadata {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.lost[namespace])
}

// deleted records that this process deleted an object. The watch may have delivered the deletion already.
func (k *kind) deleted(object *metav1.PartialObjectMetadata) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if written := k.recent[keyOf(object)]; written != nil && written.UID == object.UID {
		delete(k.recent, keyOf(object))
	}
	if !k.deletable[object.UID] {
		k.ownDeletions[object.UID] = struct{}{}
	}
}

// isDeleted reports whether this process deleted an object. If the watch shows a deletion timestamp, a finalizer keeps
// the object, and it still exists. The caller holds the lock.
func (k *kind) isDeleted(object *metav1.PartialObjectMetadata) bool {
	_, isOwn := k.ownDeletions[object.UID]
	return isOwn && object.DeletionTimestamp == nil
}

// objectsIn returns the objects in a namespace, including the latest writes of this process.
func (k *kind) objectsIn(namespace string) []*metav1.PartialObjectMetadata {
	k.mu.Lock()
	defer k.mu.Unlock()
	var objects []*metav1.PartialObjectMetadata
	for _, item := range k.items.byNamespace[namespace] {
		object := item.Metadata(k.served.Load().typeMeta)
		if k.isDeleted(object) {
			continue
		}
		key := types.NamespacedName{Namespace: namespace, Name: object.Name}
		if written := k.recent[key]; written != nil && !atLeast(object.ResourceVersion, written.ResourceVersion) {
			object = written
		}
		objects = append(objects, object)
	}
	for key, written := range k.recent {
		if atLeast(k.upTo, written.ResourceVersion) {
			delete(k.recent, key)
			continue
		}
		if key.Namespace == namespace && !contains(objects, key.Name) {
			objects = append(objects, written)
		}
	}
	return objects
}

// objectsOf returns the objects that have a template's label.
func (k *kind) objectsOf(template string) []*metav1.PartialObjectMetadata {
	k.mu.Lock()
	defer k.mu.Unlock()
	var objects []*metav1.PartialObjectMetadata
	for _, item := range k.items.of(template) {
		if object := item.Metadata(k.served.Load().typeMeta); !k.isDeleted(object) {
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

// atLeast reports whether a resource version is at least as new as another. An invalid one is not.
func atLeast(version, than string) bool {
	order, err := resourceversion.CompareResourceVersion(version, than)
	return err == nil && order >= 0
}
