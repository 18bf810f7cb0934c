package objects

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/freshness"
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
	// items are the objects that the watch has delivered.
	items items
	// written has the objects that this process applied. An event up to the last apply is an echo of it, or is not
	// relevant anymore.
	written freshness.Store[types.NamespacedName, *metav1.PartialObjectMetadata]
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
		ownDeletions:        map[types.UID]struct{}{},
		deletable:           map[types.UID]bool{},
		unansweredDeletions: map[types.UID]struct{}{},
		rewritten:           map[types.UID]rewrite{},
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

// delivered handles an item that the watch delivers in place of an old one, which may be nil, and reports whether
// another client may have caused a drift. A change of a field that no template declares, such as a status, does not
// change the managedFields entry of nstpl. The caller holds the lock.
func (k *kind) delivered(old, reduced *populate.Reduced) bool {
	object, before := reduced.Metadata(k.served.Load().typeMeta), &metav1.PartialObjectMetadata{}
	if old != nil {
		before = old.Metadata(k.served.Load().typeMeta)
	}
	written, isPending := k.written.Observed(keyOf(object), object.ResourceVersion)
	switch {
	case isPending && !freshness.Newer(object.ResourceVersion, written.ResourceVersion):
		return false
	case isPending && written.UID == object.UID:
		old, before = reduced, written // a list may have the own apply together with a later change
	}
	if old != nil && sameRecord(before, object) {
		return false
	}
	if _, isUnanswered := k.unansweredApplies[keyOf(object)]; !isUnanswered && populate.Rewritten(before, object) {
		// If this process wrote this state and the answer has not arrived yet, wrote removes the record.
		k.rewritten[object.UID] = rewrite{keyOf(object), object.ResourceVersion}
	}
	return true
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

// removed handles the deletion of an object, and reports whether its namespace is to be reconciled. The caller holds
// the lock.
func (k *kind) removed(reduced *populate.Reduced) bool {
	object := reduced.Metadata(k.served.Load().typeMeta)
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
	// The object may be the predecessor of one that this process has created since by the same name.
	k.written.Observed(keyOf(object), object.ResourceVersion)
	if !isOwn && !isDeletable && !isUnanswered && !isFormer && populate.Ours(object) {
		if k.lost[object.Namespace] == nil {
			k.lost[object.Namespace] = map[string]*metav1.PartialObjectMetadata{}
		}
		k.lost[object.Namespace][object.Name] = object
	}
	return !isOwn
}

// wrote records an object that this process applied. The watch may have delivered it already.
func (k *kind) wrote(namespace string, object *metav1.PartialObjectMetadata) {
	reduced := k.reducer.Reduce(object).Metadata(k.served.Load().typeMeta)
	k.mu.Lock()
	defer k.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: object.Name}
	k.written.Written(key, reduced)
	delete(k.unansweredApplies, key)
	delete(k.lost[namespace], object.Name)
	delete(k.unansweredDeletions, object.UID)
	if delivered := k.rewritten[object.UID]; freshness.AtLeast(object.ResourceVersion, delivered.version) {
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

// forgetOthers drops the lost objects of a namespace that are not declared.
func (k *kind) forgetOthers(namespace string, isDeclared func(name string) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.lost[namespace], func(name string, _ *metav1.PartialObjectMetadata) bool {
		return !isDeclared(name)
	})
}

// namespaceEnded drops the lost objects of a namespace that has ended. The objects that the watch still shows in it
// will be deleted, and not by another client. Those that this process has written since may be in a new namespace of
// the same name.
func (k *kind) namespaceEnded(namespace string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.lost, namespace)
	for _, item := range k.items.byNamespace[namespace] {
		k.former[item.UID] = struct{}{}
	}
	for _, written := range k.written.Unobserved() {
		delete(k.former, written.UID)
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

// namesIn returns the names of the objects in a namespace that the watch has delivered.
func (k *kind) namesIn(namespace string) []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	var names []string
	for _, item := range k.items.byNamespace[namespace] {
		names = append(names, item.Name)
	}
	return names
}

// objectsIn returns the objects in a namespace, including the latest writes of this process.
func (k *kind) objectsIn(namespace string) []*metav1.PartialObjectMetadata {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.latest(k.items.byNamespace[namespace],
		func(key types.NamespacedName, _ *metav1.PartialObjectMetadata) bool {
			return key.Namespace == namespace
		})
}

// objectsOf returns the objects that have a template's label, including the latest writes of this process.
func (k *kind) objectsOf(template string) []*metav1.PartialObjectMetadata {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.latest(k.items.of(template), func(_ types.NamespacedName, written *metav1.PartialObjectMetadata) bool {
		return written.Labels[v1alpha1.TemplateNameLabel] == template
	})
}

// latest returns the objects of items, and those that this process wrote and the watch has not delivered, if they
// match, in place of the items. The caller holds the lock.
func (k *kind) latest(
	items []*populate.Reduced, matches func(types.NamespacedName, *metav1.PartialObjectMetadata) bool,
) []*metav1.PartialObjectMetadata {
	var objects []*metav1.PartialObjectMetadata
	for _, item := range items {
		objects = append(objects, item.Metadata(k.served.Load().typeMeta))
	}
	for key, written := range k.written.Unobserved() {
		if !matches(key, written) {
			continue
		}
		isSame := func(object *metav1.PartialObjectMetadata) bool { return keyOf(object) == key }
		if at := slices.IndexFunc(objects, isSame); at >= 0 {
			objects[at] = written
		} else {
			objects = append(objects, written)
		}
	}
	return slices.DeleteFunc(objects, k.isDeleted)
}
