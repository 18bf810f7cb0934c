package watch

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

func TestMoreThanStatus(t *testing.T) {
	t.Parallel()
	object := func(change func(*corev1.Namespace)) *corev1.Namespace {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			UID: "1", Generation: 1, ResourceVersion: "1", Annotations: map[string]string{"a": "b"},
		}}
		change(ns)
		return ns
	}
	for name, test := range map[string]struct {
		change func(*corev1.Namespace)
		want   bool
	}{
		"status":                        {func(ns *corev1.Namespace) { ns.ResourceVersion, ns.Status.Phase = "2", "Active" }, false},
		"spec":                          {func(ns *corev1.Namespace) { ns.Generation = 2 }, true},
		"annotations":                   {func(ns *corev1.Namespace) { ns.Annotations = nil }, true},
		"labels":                        {func(ns *corev1.Namespace) { ns.Labels = map[string]string{"a": "b"} }, true},
		"finalizers":                    {func(ns *corev1.Namespace) { ns.Finalizers = []string{"a/b"} }, true},
		"a new object of the same name": {func(ns *corev1.Namespace) { ns.UID = "2" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			update := event.UpdateEvent{ObjectOld: object(func(*corev1.Namespace) {}), ObjectNew: object(test.change)}
			require.Equal(t, test.want, MoreThanStatus(update))
		})
	}
}
