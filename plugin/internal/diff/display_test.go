package diff

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/output"
)

func decoded(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	require.NoError(t, object.UnmarshalJSON([]byte(text)))
	return object
}

func TestWithoutServerFields(t *testing.T) {
	object := decoded(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {
		"name": "c", "uid": "1", "resourceVersion": "2", "generation": 3, "creationTimestamp": "2020-01-01T00:00:00Z",
		"managedFields": [{"manager": "x"}],
		"annotations": {"policy.nstpl.dev/applied-hash": "h"}}, "data": {"a": "1"}}`)
	require.Equal(t, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"},
		"data": map[string]any{"a": "1"},
	}, withoutServerFields(object, v1alpha1.HashAnnotation).Object)
	require.NotEmpty(t, object.GetUID(), "the argument must not be changed")
	require.NotEmpty(t, withoutServerFields(object).GetAnnotations())
	require.Nil(t, withoutServerFields(nil))
}

func TestMaskSecretsMasksEveryValue(t *testing.T) {
	live := decoded(t, `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "annotations": {
		"`+corev1.LastAppliedConfigAnnotation+`": "{\"data\": {\"a\": \"hidden\"}}"}},
		"data": {"a": "hidden", "b": "hidden"}}`)
	stored := decoded(t, `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"},
		"data": {"a": "hidden", "b": "hidden too"}, "stringData": {"c": "hidden"}}`)
	for name, pair := range map[string][2]*unstructured.Unstructured{
		"changed": {live, stored}, "created": {nil, stored}, "pruned": {live, nil},
	} {
		t.Run(name, func(t *testing.T) {
			from, to, err := maskSecrets(pair[0], pair[1])
			require.NoError(t, err)
			require.Equal(t, pair[0] == nil, from == nil)
			require.Equal(t, pair[1] == nil, to == nil)
			for _, side := range []*unstructured.Unstructured{from, to} {
				text, err := output.YAML(side)
				require.NoError(t, err)
				require.NotContains(t, string(text), "hidden")
			}
		})
	}
	from, to, err := maskSecrets(live, stored)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"a": "***", "b": "*** (before)"}, from.Object["data"])
	require.Equal(t, map[string]any{"a": "***", "b": "*** (after)"}, to.Object["data"])

	plain := decoded(t, `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": "shown"}}`)
	_, to, err = maskSecrets(nil, plain)
	require.NoError(t, err)
	require.Equal(t, plain, to)
}
