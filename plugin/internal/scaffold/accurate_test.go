package scaffold

import (
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
)

// accurateObject returns an object with labels or annotations of Accurate.
func accurateObject(kind, namespace, name, field, key, value string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": kind, "metadata": map[string]any{
			"namespace": namespace, "name": name, field: map[string]any{accuratePrefix + key: value},
		},
	}}
}

// Templates select the namespaces that refer to a template namespace, and no others.
func TestTemplateNamespacesOfAccurate(t *testing.T) {
	t.Parallel()
	namespace := func(name, key, value string) *unstructured.Unstructured {
		return accurateObject("Namespace", "", name, "labels", key, value)
	}
	d := fromAccurate(t.Context(), []*unstructured.Unstructured{
		namespace("a", "template", "b"), namespace("b", "template", "a"), // refer to each other
		namespace("root", "template", "a"), namespace("below", "parent", "root"),
		namespace("evil\n", "template", "a"),
		accurateObject("ConfigMap", "a", "settings", "annotations", "propagate", "update"),
		accurateObject("ConfigMap", "a", "copied", "annotations", "from", "b"),
	}, nil)
	selects := map[string]labels.Selector{}
	for _, doc := range d.documents {
		if doc.object["kind"] != "NamespaceTemplate" {
			continue
		}
		found, err := requirements(at[map[string]any](doc.object, "spec", "namespaces", "labelSelector"))
		require.NoError(t, err)
		selector, err := metav1.LabelSelectorAsSelector(&metav1.LabelSelector{MatchExpressions: found})
		require.NoError(t, err)
		selects[at[string](doc.object, "metadata", "name")] = selector
		require.Len(t, at[[]any](doc.object, "spec", "templates"), 1)
	}
	require.Len(t, selects, 2)
	const depth = "root.tree.policy.nstpl.dev/depth"
	for name, test := range map[string]struct {
		labels   labels.Set
		selected string
	}{
		"refers":                     {labels.Set{accurateTemplate: "a"}, "a"},
		"refers to one that refers":  {labels.Set{accurateTemplate: "b"}, "a"},
		"refers to another":          {labels.Set{accurateTemplate: "c"}, ""},
		"a root that refers":         {labels.Set{accurateTemplate: "a", depth: "1"}, "a-root"},
		"below a root that refers":   {labels.Set{accurateParent: "root", depth: "1"}, "a-root"},
		"below a root that does not": {labels.Set{accurateParent: "other", accurateTemplate: "a"}, ""},
		"of no interest":             {labels.Set{}, ""},
	} {
		var selected []string
		for template, selector := range selects {
			if selector.Matches(test.labels) {
				selected = append(selected, template)
			}
		}
		if test.selected == "" {
			require.Empty(t, selected, name)
		} else {
			require.Equal(t, []string{test.selected}, selected, name)
		}
	}
}
