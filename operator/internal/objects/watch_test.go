package objects

import (
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// newConfigMaps returns a kind whose watch does not run, and the namespaces that changed.
func newConfigMaps() (*kind, *[]string) {
	var changed []string
	return newKind(&meta.RESTMapping{
		GroupVersionKind: configMap, Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Scope: meta.RESTScopeNamespace,
	}, options{changed: func(namespace string) { changed = append(changed, namespace) }}), &changed
}

// in returns an object in a namespace at a resource version.
func in(namespace, version string) *metav1.PartialObjectMetadata {
	object := full(namespace)
	object.ResourceVersion = version
	return object
}

func TestTheFirstListChangesNothing(t *testing.T) {
	k, changed := newConfigMaps()
	require.False(t, k.hasArrived())
	require.NoError(t, k.Replace([]any{in("a", "1"), k.reduced(in("b", "2"))}, "5"))
	require.NoError(t, k.listed())
	require.Empty(t, *changed)
	require.Equal(t, "1", k.objectsIn("a")[0].ResourceVersion)
	require.Equal(t, "2", k.objectsIn("b")[0].ResourceVersion)
	require.Len(t, k.objectsOf("defaults"), 2)
	require.Empty(t, k.objectsOf("another"))
}

// A watch that fell behind starts with a list, which tells the changes since.
func TestALaterListIsHandledAsChanges(t *testing.T) {
	k, changed := newConfigMaps()
	require.NoError(t, k.Replace([]any{in("same", "1"), in("edited", "2"), in("deleted", "3")}, "5"))
	edited := in("edited", "7")
	edited.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{}`)
	require.NoError(t, k.Replace([]any{in("same", "1"), edited, in("created", "8")}, "9"))
	require.ElementsMatch(t, []string{"edited", "deleted", "created"}, *changed)
	require.Empty(t, k.objectsIn("deleted"))
	require.Equal(t, "8", k.objectsIn("created")[0].ResourceVersion)
	require.True(t, k.tampered(edited), "another client wrote the fields of nstpl")
}

// A list after a restart of the API server has everything again. It must not be in memory twice.
func TestObjectsThatAreListedAgainUnchangedAreKept(t *testing.T) {
	k, changed := newConfigMaps()
	require.NoError(t, k.Replace([]any{in("same", "1"), in("edited", "2"), in("replaced", "3")}, "5"))
	item := func(namespace string) *populate.Reduced { return k.items.byNamespace[namespace][0] }
	same, edited := item("same"), item("edited")
	replaced := in("replaced", "3")
	replaced.UID = "another"
	var listed []any
	for _, object := range []*metav1.PartialObjectMetadata{in("same", "1"), in("edited", "7"), replaced, in("new", "8")} {
		transformed, err := k.Transformer()(object)
		require.NoError(t, err)
		listed = append(listed, transformed)
	}
	require.Same(t, same, listed[0])
	require.NotSame(t, edited, listed[1])
	require.EqualValues(t, "another", listed[2].(*populate.Reduced).UID)
	require.NoError(t, k.Replace(listed, "9"))
	require.Same(t, same, item("same"))
	require.Equal(t, "7", item("edited").ResourceVersion)
	require.NotContains(t, *changed, "same")
	require.Contains(t, *changed, "new")
	require.Len(t, k.objectsOf("defaults"), 4)
}

func TestEventsChangeTheObjectsOfANamespace(t *testing.T) {
	k, changed := newConfigMaps()
	require.NoError(t, k.Replace(nil, "1"))
	require.NoError(t, k.Add(in("a", "2")))
	require.Len(t, k.objectsIn("a"), 1)
	require.NoError(t, k.Update(in("a", "3")))
	require.Equal(t, "3", k.objectsIn("a")[0].ResourceVersion)
	require.Equal(t, []string{"a"}, *changed, "an update of what no plan reads changes nothing")
	require.NoError(t, k.Delete(in("a", "4")))
	require.Empty(t, k.objectsIn("a"))
	require.Equal(t, []string{"a", "a"}, *changed)
}

// A write of this process is seen before the watch delivers it, and is forgotten once the watch has passed it.
func TestOwnWritesAreKnownUntilTheWatchHasPassedThem(t *testing.T) {
	for name, passes := range map[string]func(*kind) error{
		"by an event":    func(k *kind) error { return k.Add(in("elsewhere", "9")) },
		"by a bookmark":  func(k *kind) error { return k.Bookmark("9") },
		"by a deletion":  func(k *kind) error { return k.Delete(in("elsewhere", "9")) },
		"by a new list":  func(k *kind) error { return k.Replace(nil, "9") },
		"by the written": func(k *kind) error { return k.Update(in("a", "8")) },
	} {
		t.Run(name, func(t *testing.T) {
			k, _ := newConfigMaps()
			require.NoError(t, k.Replace(nil, "1"))
			k.wrote("a", in("a", "8"))
			require.Equal(t, "8", k.objectsIn("a")[0].ResourceVersion)
			require.NoError(t, k.Bookmark("7"))
			require.Len(t, k.objectsIn("a"), 1)
			require.NoError(t, passes(k))
			require.Empty(t, maps.Collect(k.written.Unobserved()))
		})
	}
}

// An object that this process creates and another client deletes while no watch runs is in no list, and is missed.
func TestAnObjectThatIsDeletedBeforeItIsListedIsMissed(t *testing.T) {
	k, changed := newConfigMaps()
	require.NoError(t, k.Replace(nil, "1"))
	k.wrote("a", in("a", "8"))
	k.wrote("later", in("later", "12"))
	require.NoError(t, k.Replace(nil, "9"))
	require.Equal(t, []string{"a"}, *changed)
	require.Empty(t, k.objectsIn("a"))
	require.Len(t, k.objectsIn("later"), 1)
}

// A watch that is late delivers the deletion of an object after its successor was created.
func TestALateDeletionDoesNotHideTheSuccessor(t *testing.T) {
	k, _ := newConfigMaps()
	first, successor := in("a", "7"), in("a", "9")
	successor.UID = "uid of the successor"
	require.NoError(t, k.Add(first))
	k.expectDeletion(first.UID)
	k.deleted(first)
	k.wrote("a", successor)
	k.planEnded(first.UID)
	require.NoError(t, k.Delete(in("a", "8")))
	require.Len(t, k.objectsIn("a"), 1)
	require.Equal(t, successor.UID, k.objectsIn("a")[0].UID)
	require.Empty(t, k.lostIn("a"))

	removed := in("a", "10")
	removed.UID = successor.UID
	require.NoError(t, k.Delete(removed))
	require.Empty(t, k.objectsIn("a"))
}

// While no watch runs, this process applies an object and another client changes it. The list shows both at once.
func TestAListWithAnOwnWriteAndALaterChangeIsNotTampering(t *testing.T) {
	k, _ := newConfigMaps()
	require.NoError(t, k.Replace([]any{at("5", 1)}, "5"))
	k.wrote("a", at("7", 2))
	require.NoError(t, k.Replace([]any{at("8", 2)}, "8"))
	require.False(t, k.tampered(at("8", 2)), "only this process wrote the entry of nstpl")
	require.NoError(t, k.Replace([]any{at("9", 3)}, "9"))
	require.True(t, k.tampered(at("9", 3)))
}
