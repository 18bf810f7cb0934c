package hint

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The token is read for a new spec, also for that of a PolicyRepository that was created again with spec.hint while the
// watch was interrupted. It is not read for the annotation that a hint causes.
func TestTheTokenIsReadForANewSpec(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		uid        types.UID
		generation int64
		annotation string
		want       bool
	}{
		"a hint":              {"a", 1, "now", false},
		"another spec":        {"a", 2, "", true},
		"created again":       {"b", 1, "", true},
		"nothing has changed": {"a", 1, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := &v1alpha1.PolicyRepository{ObjectMeta: metav1.ObjectMeta{UID: "a", Generation: 1}}
			after := before.DeepCopy()
			after.UID, after.Generation = test.uid, test.generation
			after.Annotations = map[string]string{v1alpha1.SyncRequestedAnnotation: test.annotation}
			require.Equal(t, test.want, changesSpec(event.UpdateEvent{ObjectOld: before, ObjectNew: after}))
		})
	}
}
