package render

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// TestObjectsWithoutTokensShareTheirContent expects the same objects and hashes as if each had been rendered by itself,
// and that a namespace, a name or labels of one do not appear in another.
func TestObjectsWithoutTokensShareTheirContent(t *testing.T) {
	t.Parallel()
	compiled := compiledOf(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {a: b}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: literal}, data: {a: $$(NAMESPACE)}}",
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: token}, data: {a: $(NAMESPACE)}}",
		"{apiVersion: v1, kind: Secret, metadata: {name: secret}, data: {a: YQ==}}")
	stamp := func(namespace string) []Object {
		objects, omitted, err := compiled.Stamp(Values{Namespace: namespace})
		require.NoError(t, err)
		require.Empty(t, omitted)
		return objects
	}
	a, b := stamp("team-a"), stamp("team-b")
	for i, source := range compiled.objects {
		require.Equal(t, source.GetName() == "settings", source.hash != "", source.GetName())
		for namespace, object := range map[string]Object{"team-a": a[i], "team-b": b[i]} {
			alone := Values{Namespace: namespace}.stampObject(&source.Unstructured)
			alone.SetNamespace(namespace)
			require.Equal(t, alone, object.Unstructured)
			hash, err := Hash(alone)
			require.NoError(t, err)
			require.Equal(t, hash, object.Hash)
		}
	}
	changed := a[0]
	changed.SetName("changed")
	changed.SetLabels(map[string]string{"changed": "yes"})
	changed.Object["data"] = map[string]any{}
	require.Equal(t, b, stamp("team-b"))
	require.NotEqual(t, a[2].Hash, b[2].Hash)
}

func TestHashOmitsTheNamespace(t *testing.T) {
	t.Parallel()
	hashOf := func(namespace, data string) string {
		hash, err := Hash(&unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": data},
			"metadata": map[string]any{"name": "a", "namespace": namespace},
		}})
		require.NoError(t, err)
		return hash
	}
	require.Equal(t, hashOf("team-a", "b"), hashOf("team-b", "b"))
	require.NotEqual(t, hashOf("team-a", "b"), hashOf("team-a", "c"))
}
