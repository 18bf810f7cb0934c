package render

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestSamples(t *testing.T) {
	for name, test := range map[string]struct {
		object string
		// names are the names of the samples, and unusual is the number of those with an unusual creator.
		names   []string
		unusual int
	}{
		"no tokens": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: $(NAMESPACE)}}", []string{"a"}, 0,
		},
		"an escaped token": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: $$(CREATOR)}}", []string{"a"}, 0,
		},
		"the namespace": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: of-$(NAMESPACE)}}",
			[]string{"of-" + strings.Repeat("n", 63), "of-team-a"}, 0,
		},
		"the creator": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: $(CREATOR)}}",
			[]string{"nstpl-trial-creator", "jane", "system:serviceaccount:ci:jane@example.com"}, 1,
		},
		"the creator elsewhere": {
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {by: $(CREATOR)}}", []string{"a", "a", "a"},
			1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			object := &unstructured.Unstructured{}
			require.NoError(t, yaml.Unmarshal([]byte(test.object), &object.Object))
			before := object.DeepCopy()
			var names []string
			unusual := 0
			for _, sample := range Samples(object) {
				require.Equal(t, "nstpl-trial", sample.GetNamespace())
				names = append(names, sample.GetName())
				if sample.Unusual {
					unusual++
				}
			}
			require.Equal(t, test.names, names)
			require.Equal(t, test.unusual, unusual)
			require.Equal(t, before, object, "the object is not changed")
		})
	}
}

func TestUnrender(t *testing.T) {
	for _, object := range []string{"of-$(NAMESPACE)", "$(CREATOR) in $(NAMESPACE)", "neither"} {
		require.Equal(t, object, Unrender(extremeValues.expand(object)))
	}
	require.Equal(t, "by $(CREATOR)", Unrender(unusualValues.expand("by $(CREATOR)")))
}
