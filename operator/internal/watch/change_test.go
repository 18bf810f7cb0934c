package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestChangeHandler(t *testing.T) {
	t.Parallel()
	var changes [][2]*corev1.Namespace
	handler := ChangeHandler(func(before, after *corev1.Namespace) {
		changes = append(changes, [2]*corev1.Namespace{before, after})
	})
	old := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", ResourceVersion: "1"}}
	updated := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a", ResourceVersion: "2"}}
	handler.OnAdd(old, false)
	handler.OnUpdate(old, updated)
	handler.OnDelete(updated)
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "team-a", Obj: updated})
	handler.OnDelete(toolscache.DeletedFinalStateUnknown{Key: "team-a"})
	require.Equal(t, [][2]*corev1.Namespace{{nil, old}, {old, updated}, {updated, nil}, {updated, nil}}, changes)
}
