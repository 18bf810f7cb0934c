package survey

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func decoded(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON([]byte(text)))
	return object
}

func TestEstimateMergesTheDeclarationIntoTheLiveObject(t *testing.T) {
	live := decoded(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "labels": {"own": "x"}},
		"data": {"a": "1", "own": "y"}}`)
	declared := `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "2"}}`

	merged, err := estimate(live, []byte(declared))
	require.NoError(t, err)
	require.Equal(t, decoded(t, `{"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": {"name": "c", "labels": {"own": "x"}}, "data": {"a": "2", "own": "y"}}`), merged)

	created, err := estimate(nil, []byte(declared))
	require.NoError(t, err)
	require.Equal(t, decoded(t, declared), created)
}
