package constraint

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestEventsThatChangeTheIDsOfANamespace(t *testing.T) {
	t.Parallel()
	namespace := func(uid types.UID, ids string) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "a", UID: uid}}
		if ids != "" {
			ns.Annotations = map[string]string{v1alpha1.UIDRangeAnnotation: ids}
		}
		return ns
	}
	require.True(t, changesIDs.Create(event.CreateEvent{Object: namespace("1", "1000/10")}))
	require.False(t, changesIDs.Create(event.CreateEvent{Object: namespace("1", "")}))
	require.False(t, changesIDs.Delete(event.DeleteEvent{Object: namespace("1", "1000/10")}))
	for name, test := range map[string]struct {
		before, after *corev1.Namespace
		want          bool
	}{
		"the same":                      {namespace("1", "1000/10"), namespace("1", "1000/10"), false},
		"given":                         {namespace("1", ""), namespace("1", "1000/10"), true},
		"another namespace of the name": {namespace("1", "1000/10"), namespace("2", "1000/10"), true},
	} {
		require.Equal(t, test.want,
			changesIDs.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}), name)
	}
}
