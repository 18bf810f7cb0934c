package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestWrittenIsLatestUntilTheCacheHasIt(t *testing.T) {
	t.Parallel()
	at := func(uid, version string) *v1alpha1.NamespaceTemplate {
		return &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{
			Name: "a", UID: types.UID(uid), ResourceVersion: version,
		}}
	}
	before, after, later := at("1", "9"), at("1", "10"), at("1", "11")
	var written Written[*v1alpha1.NamespaceTemplate]
	require.Same(t, before, written.Latest(before), "nothing was written")
	written.Add(after)
	require.Same(t, after, written.Latest(before))
	require.Same(t, later, written.Latest(later))
	require.Same(t, before, written.Latest(before), "it is forgotten once the cache has had it")

	written.Add(after)
	require.False(t, written.MoreThanStatus(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
	require.Empty(t, written.objects, "nothing is kept that the cache has")

	written.Add(after)
	other := at("2", "9")
	require.Same(t, other, written.Latest(other), "the object was created again")
	written.Add(after)
	written.Forget("a")
	require.Same(t, before, written.Latest(before))
}
