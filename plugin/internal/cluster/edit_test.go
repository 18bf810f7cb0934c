package cluster

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// A patch names the state of the object that it was computed from, so the API server applies it to no other.
func TestPatchesArePinnedToTheObjectAsItWasRead(t *testing.T) {
	object := &unstructured.Unstructured{}
	object.SetUID("1234")
	object.SetResourceVersion("7")
	for name, test := range map[string]struct {
		fields map[string]any
		want   string
	}{
		"spec": {
			map[string]any{"spec": map[string]any{"suspend": true}},
			`{"metadata":{"uid":"1234","resourceVersion":"7"},"spec":{"suspend":true}}`,
		},
		"metadata": {
			map[string]any{"metadata": map[string]any{"annotations": map[string]any{"a": "b"}}},
			`{"metadata":{"uid":"1234","resourceVersion":"7","annotations":{"a":"b"}}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := pinned(test.fields, object)
			require.NoError(t, err)
			require.JSONEq(t, test.want, string(data))
		})
	}
}
