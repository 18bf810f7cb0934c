package objects

import (
	"maps"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

// at returns an object with a resource version and the time of the managedFields entry of nstpl.
func at(version string, seconds int64) *metav1.PartialObjectMetadata {
	object := full("a")
	object.ResourceVersion = version
	delete(object.Annotations, v1alpha1.AdoptedAnnotation)
	object.ManagedFields[0].Time = new(metav1.Unix(seconds, 0))
	return reduced(object)
}

// deliver has the watch deliver a state of an object after an older one, unless that is nil.
func deliver(k *kind, old, object *metav1.PartialObjectMetadata) {
	if old != nil {
		k.items.put(k.reduced(old))
	}
	_ = k.Update(object)
}

// remove has the watch deliver the deletion of an object.
func remove(k *kind, object *metav1.PartialObjectMetadata) {
	k.items.put(k.reduced(object))
	_ = k.Delete(object)
}

// The events of the watch and the answers to the writes of this process arrive in any order.
func TestManagedFieldsWrittenByAnotherClientAreDistinguishedFromOwnApplies(t *testing.T) {
	for name, c := range map[string]struct {
		events   func(k *kind)
		tampered bool
	}{
		"the answer arrives first": {func(k *kind) {
			k.wrote("a", at("7", 1))
			deliver(k, nil, at("7", 1))
		}, false},
		"the event arrives first": {func(k *kind) {
			deliver(k, nil, at("7", 1))
			k.wrote("a", at("7", 1))
		}, false},
		"another client creates the object": {func(k *kind) { deliver(k, nil, at("7", 1)) }, true},
		"another client applies afterwards": {func(k *kind) {
			k.wrote("a", at("7", 1))
			deliver(k, nil, at("7", 1))
			deliver(k, at("7", 1), at("8", 2))
		}, true},
		"another client applies before the event arrives": {func(k *kind) {
			k.wrote("a", at("7", 1))
			deliver(k, at("6", 0), at("8", 2))
		}, true},
		"the status changes afterwards": {func(k *kind) {
			k.wrote("a", at("7", 1))
			deliver(k, nil, at("7", 1))
			deliver(k, at("7", 1), at("8", 1))
		}, false},
		"the event of the next own apply arrives first": {func(k *kind) {
			deliver(k, at("7", 1), at("8", 2))
			k.wrote("a", at("8", 2))
		}, false},
		"the next own apply corrects the object": {func(k *kind) {
			deliver(k, at("7", 1), at("8", 2))
			k.wrote("a", at("9", 3))
			deliver(k, at("8", 2), at("9", 3))
		}, false},
		"an older state arrives late": {func(k *kind) {
			k.wrote("a", at("9", 3))
			deliver(k, at("7", 1), at("8", 2))
			deliver(k, at("8", 2), at("9", 3))
		}, false},
		"the answer is lost and the event arrives first": {func(k *kind) {
			deliver(k, nil, at("7", 1))
			k.answerLost("a", "settings")
		}, false},
		"the answer is lost": {func(k *kind) {
			k.answerLost("a", "settings")
			deliver(k, nil, at("7", 1))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKind(&meta.RESTMapping{
				GroupVersionKind: configMap,
				Resource:         schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			}, options{changed: func(string) {}})
			c.events(k)
			require.Equal(t, c.tampered, k.tampered(at("9", 3)))
			require.Empty(t, maps.Collect(k.written.Unobserved()), "the watch has delivered them")
		})
	}
}

// The watch and the answer of an apply arrive at the same time, in every interleaving that many attempts produce.
func TestAnOwnApplyIsNotTampering(t *testing.T) {
	k, _ := newConfigMaps()
	for i := range 20_000 {
		object := at(strconv.Itoa(i+1), int64(i))
		var both sync.WaitGroup
		both.Go(func() { deliver(k, nil, object) })
		both.Go(func() { k.wrote("a", object) })
		both.Wait()
		require.False(t, k.tampered(object))
		require.Empty(t, maps.Collect(k.written.Unobserved()), "the watch has delivered the answer")
	}
}

func TestObjectsThatThisProcessDeletesAreNotLost(t *testing.T) {
	for name, c := range map[string]struct {
		events  func(k *kind)
		lost    bool
		changed int
	}{
		"another client deletes the object": {func(k *kind) { remove(k, at("7", 1)) }, true, 1},
		"the answer arrives first": {func(k *kind) {
			k.expectDeletion("uid")
			k.deleted(at("7", 1))
			k.planEnded("uid")
			remove(k, at("7", 1))
		}, false, 0},
		"the event arrives first": {func(k *kind) {
			k.expectDeletion("uid")
			remove(k, at("7", 1))
			k.deleted(at("7", 1))
			k.planEnded("uid")
		}, false, 1},
		"the answer is lost": {func(k *kind) {
			k.expectDeletion("uid")
			k.maybeDeleted(at("7", 1))
			k.planEnded("uid")
			remove(k, at("7", 1))
		}, false, 1},
		"the answer is lost and the event arrives first": {func(k *kind) {
			k.expectDeletion("uid")
			remove(k, at("7", 1))
			k.maybeDeleted(at("7", 1))
			k.planEnded("uid")
		}, false, 1},
		"the answer is lost and the next plan is made before the event arrives": {func(k *kind) {
			k.expectDeletion("uid")
			k.maybeDeleted(at("7", 1))
			k.planEnded("uid")
			k.expectDeletion("uid")
			k.planEnded("uid")
			remove(k, at("7", 1))
		}, false, 1},
		"another client deletes the object after it was applied again": {func(k *kind) {
			k.expectDeletion("uid")
			k.maybeDeleted(at("7", 1))
			k.planEnded("uid")
			k.wrote("a", at("8", 2))
			remove(k, at("8", 2))
		}, true, 1},
		"its namespace has ended": {func(k *kind) {
			k.items.put((&populate.Reducer{}).Reduce(at("7", 1)))
			k.namespaceEnded("a")
			remove(k, at("7", 1))
		}, false, 1},
		"another client had deleted it before its namespace ended": {func(k *kind) {
			remove(k, at("7", 1))
			k.namespaceEnded("a")
		}, false, 1},
		"another client deletes an object that was applied to a new namespace of the same name": {func(k *kind) {
			k.wrote("a", at("7", 1))
			k.items.put((&populate.Reducer{}).Reduce(at("7", 1)))
			k.namespaceEnded("a")
			remove(k, at("7", 1))
		}, true, 1},
		"another client deletes the object while a plan is applied": {func(k *kind) {
			k.expectDeletion("uid")
			remove(k, at("7", 1))
			k.planEnded("uid")
		}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			changed := 0
			k := newKind(&meta.RESTMapping{
				GroupVersionKind: configMap,
				Resource:         schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
			}, options{changed: func(string) { changed++ }})
			c.events(k)
			require.Equal(t, c.lost, len(k.lostIn("a")) == 1)
			require.Equal(t, c.changed, changed,
				"the namespace is reconciled unless this process received the answer to its deletion")
			require.Empty(t, k.ownDeletions)
			require.Empty(t, k.former)
			require.Empty(t, k.unansweredDeletions)
			require.Equal(t, map[types.UID]bool{}, k.deletable)
		})
	}
}
