package diff

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// written holds an object that was written since it was listed.
type written struct {
	dynamic.ResourceInterface
	object *unstructured.Unstructured
}

func (w written) Get(
	context.Context, string, metav1.GetOptions, ...string,
) (*unstructured.Unstructured, error) {
	return w.object.DeepCopy(), nil
}

// Update refuses another resourceVersion, and sets a default.
func (w written) Update(
	_ context.Context, object *unstructured.Unstructured, _ metav1.UpdateOptions, _ ...string,
) (*unstructured.Unstructured, error) {
	if object.GetResourceVersion() != w.object.GetResourceVersion() {
		return nil, apierrors.NewConflict(v1alpha1.PolicySpaces.GroupResource(), object.GetName(), errors.New("modified"))
	}
	stored := object.DeepCopy()
	return stored, unstructured.SetNestedField(stored.Object, "set", "spec", "default")
}

// An object that its controller writes meanwhile, such as its status, does not differ for that.
func TestCompareObjectReadsAnObjectAgainThatWasWritten(t *testing.T) {
	object := func(version string, spec map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NamespaceTemplate",
			"metadata": map[string]any{
				"name": "a", "resourceVersion": version, "labels": map[string]any{v1alpha1.TreeLabel: "a"},
			}, "spec": spec,
		}}
	}
	declared := object("", map[string]any{"templates": []any{}})
	listed := object("1", map[string]any{"default": "set", "templates": []any{}})
	now := written{object: object("2", map[string]any{"default": "set", "templates": []any{}})}
	require.Empty(t, compareObject(t.Context(), now, listed, declared, nil).Action)
	now.object.Object["spec"] = map[string]any{"default": "set", "templates": []any{map[string]any{"a": "b"}}}
	require.Equal(t, actionConfigure, compareObject(t.Context(), now, listed, declared, nil).Action)
}

// An object with the defaults that the API server set needs no dry run.
func TestWithoutDefaultsRemovesDefaults(t *testing.T) {
	live := &unstructured.Unstructured{Object: map[string]any{
		"kind": "NamespaceTemplate",
		"spec": map[string]any{"driftPolicy": "Correct", "failurePolicy": "Fail", "revisionHistoryLimit": int64(10)},
	}}
	require.Empty(t, withoutDefaults(live).Object["spec"])
	live.Object["spec"] = map[string]any{"driftPolicy": "Report", "failurePolicy": "Ignore", "revisionHistoryLimit": int64(3)}
	require.Equal(t, live.Object, withoutDefaults(live).Object)
}
