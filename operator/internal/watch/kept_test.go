package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestKept(t *testing.T) {
	namespace := func(version string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", UID: "uid", ResourceVersion: version}}
	}
	reduced := namespace("reduced")
	kept := &Kept{Reduce: func(any) (any, error) { return reduced, nil }}
	transform := func(object any) any {
		transformed, err := kept.Transform(object)
		require.NoError(t, err)
		return transformed
	}
	require.Same(t, reduced, transform(namespace("5")), "nothing is known")

	store := toolscache.NewStore(toolscache.DeletionHandlingMetaNamespaceKeyFunc)
	kept.know(store)
	require.Same(t, reduced, transform(namespace("5")), "the cache is empty")
	known := namespace("5")
	require.NoError(t, store.Add(known))
	require.Same(t, known, transform(namespace("5")))
	require.Same(t, reduced, transform(namespace("6")), "it has changed")
	successor := namespace("5")
	successor.UID = "another"
	require.Same(t, reduced, transform(successor))
	another := namespace("5")
	another.Name = "team-b"
	require.Same(t, reduced, transform(another))
	require.Same(t, reduced, transform(toolscache.DeletedFinalStateUnknown{Key: "team-a", Obj: known}))
}
