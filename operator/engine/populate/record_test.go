package populate

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestBodyAddsTheRecordToTheDeclaration(t *testing.T) {
	annotated := "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, annotations: {a: b}}}"
	for _, source := range []string{settings, annotated} {
		object := declare(teamA(), templateOf(t, "a", source)).Objects[0]
		before, err := json.Marshal(object.Object)
		require.NoError(t, err)
		for _, existing := range []metav1.Object{nil, foreign("settings", "a")} {
			body, err := Change{Declared: &object}.Body(existing)
			require.NoError(t, err)
			want := object.DeepCopy()
			annotations := want.GetAnnotations()
			if annotations == nil {
				annotations = map[string]string{}
			}
			annotations[v1alpha1.HashAnnotation] = object.Hash
			if existing != nil {
				annotations[v1alpha1.AdoptedAnnotation] = "true"
			}
			want.SetAnnotations(annotations)
			wantJSON, err := json.Marshal(want.Object)
			require.NoError(t, err)
			require.JSONEq(t, string(wantJSON), string(body))
		}
		after, err := json.Marshal(object.Object)
		require.NoError(t, err)
		require.Equal(t, string(before), string(after), "the declaration itself does not change")
	}
}
