package objects

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// at returns an object as of a resource version, with the time of this project's managedFields entry.
func at(version string, seconds int64) *metav1.PartialObjectMetadata {
	object := full("a")
	object.ResourceVersion = version
	delete(object.Annotations, v1alpha1.AdoptedAnnotation)
	object.ManagedFields[0].Time = new(metav1.Unix(seconds, 0))
	return newReducer(configMap).metadata(object)
}

// The watch and the answers to this process's own writes come in any order.
func TestRewrittenManagedFieldsAreToldFromOwnApplies(t *testing.T) {
	for name, c := range map[string]struct {
		events   func(k *kind)
		tampered bool
	}{
		"the answer comes first": {func(k *kind) {
			k.wrote("a", at("7", 1))
			k.added(at("7", 1))
		}, false},
		"the watch comes first": {func(k *kind) {
			k.added(at("7", 1))
			k.wrote("a", at("7", 1))
		}, false},
		"another client creates it": {func(k *kind) { k.added(at("7", 1)) }, true},
		"another client applies after that": {func(k *kind) {
			k.wrote("a", at("7", 1))
			k.added(at("7", 1))
			k.updated(at("7", 1), at("8", 2))
		}, true},
		"another client applies before the watch": {func(k *kind) {
			k.wrote("a", at("7", 1))
			k.updated(at("6", 0), at("8", 2))
		}, true},
		"a status follows": {func(k *kind) {
			k.wrote("a", at("7", 1))
			k.added(at("7", 1))
			k.updated(at("7", 1), at("8", 1))
		}, false},
		"the next own apply, the watch first": {func(k *kind) {
			k.updated(at("7", 1), at("8", 2))
			k.wrote("a", at("8", 2))
		}, false},
		"the next own apply corrects it": {func(k *kind) {
			k.updated(at("7", 1), at("8", 2))
			k.wrote("a", at("9", 3))
			k.updated(at("8", 2), at("9", 3))
		}, false},
		"an older state comes late": {func(k *kind) {
			k.wrote("a", at("9", 3))
			k.updated(at("7", 1), at("8", 2))
			k.updated(at("8", 2), at("9", 3))
		}, false},
		"an apply whose answer was lost, the watch first": {func(k *kind) {
			k.added(at("7", 1))
			k.answerLost("a", "settings")
		}, false},
		"an apply whose answer was lost": {func(k *kind) {
			k.answerLost("a", "settings")
			k.added(at("7", 1))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKind(nil,
				&meta.RESTMapping{
					GroupVersionKind: configMap,
					Resource:         schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
				}, "", func(string) {})
			c.events(k)
			require.Equal(t, c.tampered, k.tampered(at("9", 3)))
			require.Empty(t, k.written, "nothing is kept of what the watch has shown")
		})
	}
}

func TestWhatThisProcessDeletesIsNotLost(t *testing.T) {
	for name, c := range map[string]struct {
		events  func(k *kind)
		lost    bool
		changed int
	}{
		"another client deletes it": {func(k *kind) { k.removed(at("7", 1)) }, true, 1},
		"the answer comes first": {func(k *kind) {
			k.leave("uid", true)
			k.deleted(at("7", 1))
			k.stay("uid")
			k.removed(at("7", 1))
		}, false, 0},
		"the watch comes first": {func(k *kind) {
			k.leave("uid", true)
			k.removed(at("7", 1))
			k.deleted(at("7", 1))
			k.stay("uid")
		}, false, 1},
		"no answer comes": {func(k *kind) {
			k.leave("uid", true)
			k.maybeDeleted(at("7", 1))
			k.stay("uid")
			k.removed(at("7", 1))
		}, false, 1},
		"no answer comes, and the watch was first": {func(k *kind) {
			k.leave("uid", true)
			k.removed(at("7", 1))
			k.maybeDeleted(at("7", 1))
			k.stay("uid")
		}, false, 1},
		"no answer comes, and the next plan does not know it": {func(k *kind) {
			k.leave("uid", true)
			k.maybeDeleted(at("7", 1))
			k.stay("uid")
			k.leave("uid", true)
			k.stay("uid")
			k.removed(at("7", 1))
		}, false, 1},
		"another client, after the object was applied again": {func(k *kind) {
			k.leave("uid", true)
			k.maybeDeleted(at("7", 1))
			k.stay("uid")
			k.wrote("a", at("8", 2))
			k.removed(at("8", 2))
		}, true, 1},
		"another client, while a plan is run": {func(k *kind) {
			k.leave("uid", true)
			k.removed(at("7", 1))
			k.stay("uid")
		}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			changed := 0
			k := newKind(nil,
				&meta.RESTMapping{
					GroupVersionKind: configMap,
					Resource:         schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
				}, "", func(string) { changed++ })
			c.events(k)
			require.Equal(t, c.lost, len(k.lostIn("a")) == 1)
			require.Equal(t, c.changed, changed,
				"the namespace is reconciled unless this process surely deleted the object")
			require.Empty(t, k.gone)
			require.Empty(t, k.unanswered)
			require.Equal(t, map[types.UID]bool{}, k.leaving)
		})
	}
}
