package why

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

func TestAddManagers(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC)
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, age time.Duration, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{
			Manager: manager, Operation: operation, Time: new(metav1.NewTime(now.Add(-age))),
			FieldsV1: metav1.NewFieldsV1(fields),
		}
	}
	status := entry("kube-controller-manager", metav1.ManagedFieldsOperationUpdate, 0, `{"f:status":{"f:used":{}}}`)
	status.Subresource = "status"
	scale := entry("kubectl", metav1.ManagedFieldsOperationUpdate, 0, `{"f:spec":{"f:replicas":{}}}`)
	scale.Subresource = "scale"
	object := &unstructured.Unstructured{Object: map[string]any{}}
	object.SetManagedFields([]metav1.ManagedFieldsEntry{
		entry("editor", metav1.ManagedFieldsOperationUpdate, time.Minute, `{"f:data":{"f:a":{},".":{}},"f:immutable":{}}`),
		status, scale,
		entry(v1alpha1.FieldManager, metav1.ManagedFieldsOperationApply, time.Hour,
			`{"f:data":{"f:a":{},"f:b":{},"f:c":{},"f:d":{},"f:e":{},"f:f":{},"f:g":{}}}`),
		{Manager: "old", Operation: metav1.ManagedFieldsOperationUpdate},
	})
	var a answer
	addManagers(&a, object, now)
	require.Equal(t, []fact{
		{labelChangedBy, "old (update): unknown fields"},
		{labelChangedBy, "nstpl, the operator (apply, 60m ago): data.a, data.b, data.c, data.d, data.e, data.f and 1 more"},
		{labelChangedBy, "editor (update, 60s ago): data.a, immutable"},
		{labelChangedBy, "kubectl (update, 0s ago): spec.replicas"},
	}, a.Facts)
}

func TestAddDrift(t *testing.T) {
	t.Parallel()
	object := func(apiVersion, kind string, data map[string]any) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": apiVersion, "kind": kind, "data": data,
			"metadata": map[string]any{
				"name": "x", "resourceVersion": data["a"],
				"labels":      map[string]any{v1alpha1.TemplateNameLabel: data["a"]},
				"annotations": map[string]any{v1alpha1.HashAnnotation: data["a"]},
			},
			"status": map[string]any{"at": data["a"]},
		}}
	}
	for kind, want := range map[string]string{
		"ConfigMap": "differs: data.a mine -> declared (set by editor)",
		"Secret":    "differs: data.a (set by editor)",
	} {
		live := object("v1", kind, map[string]any{"a": "mine"})
		live.SetManagedFields([]metav1.ManagedFieldsEntry{{
			Manager: "editor", Operation: metav1.ManagedFieldsOperationUpdate,
			FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:a":{}}}`),
		}})
		var a answer
		addDrift(&a, survey.Sides{Live: live, Stored: object("v1", kind, map[string]any{"a": "declared"})})
		require.Equal(t, []fact{{labelState, want}}, a.Facts)
	}
	var a answer
	addDrift(&a, survey.Sides{Live: object("v1", "ConfigMap", nil)})
	require.Empty(t, a.Facts)
}
