package populate

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestReducedMetadataHasWhatPlansRead(t *testing.T) {
	const labelled = `{"f:metadata":{"f:labels":{"f:policy/namespace-template-name":{}}}}`
	own := metav1.ManagedFieldsEntry{
		Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
		FieldsV1: metav1.NewFieldsV1(`{"f:data":{}}`),
	}
	user := metav1.ManagedFieldsEntry{
		Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: metav1.NewFieldsV1(labelled),
	}
	immutable := metav1.ManagedFieldsEntry{
		Manager: "kubectl-patch", Operation: metav1.ManagedFieldsOperationUpdate,
		FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:a":{}},"f:immutable":{}}`),
	}
	tests := map[string][]metav1.ManagedFieldsEntry{
		"made immutable by a user":     {own, immutable},
		"created by nstpl":             {own, user},
		"label set by a user":          {user},
		"without managedFields":        nil,
		"managedFields without fields": {{Manager: "kubectl", Operation: metav1.ManagedFieldsOperationUpdate}},
	}
	for name, entries := range tests {
		t.Run(name, func(t *testing.T) {
			full := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
				Name: "a", Namespace: "b", UID: "c", Finalizers: []string{"d"}, DeletionTimestamp: &metav1.Time{},
				Labels: map[string]string{v1alpha1.TemplateNameLabel: "e", "f": "g"},
				Annotations: map[string]string{
					v1alpha1.HashAnnotation: "h", v1alpha1.AdoptedAnnotation: "true", v1alpha1.UnownedAnnotation: "i",
					v1alpha1.DeletionProtectionAnnotation: "true", v1alpha1.CopyOfAnnotation: "k/l", "large": "j",
				},
				ManagedFields: entries,
			}}
			kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
			apiVersion, name := kind.ToAPIVersionAndKind()
			reduced := new(Reducer).Reduce(full).Metadata(metav1.TypeMeta{APIVersion: apiVersion, Kind: name})
			require.Equal(t, kind, reduced.GroupVersionKind())
			require.True(t, SameRecord(full, reduced))
			require.Equal(t, recordOf(full), recordOf(reduced))
			require.Equal(t, ownEntry(full), ownEntry(reduced))
			config := &Object{Unstructured: &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}}
			require.Equal(t, madeImmutableBy(config, full), madeImmutableBy(config, reduced))
			require.Equal(t, full.DeletionTimestamp, reduced.DeletionTimestamp)
			require.Equal(t, full.Finalizers, reduced.Finalizers)
			require.Len(t, reduced.ManagedFields, len(entries))
			require.Equal(t, "k/l", reduced.Annotations[v1alpha1.CopyOfAnnotation])
			require.NotContains(t, reduced.Annotations, "large")
			require.NotContains(t, reduced.Labels, "f")
		})
	}
}

func TestEqualMetadataIsShared(t *testing.T) {
	full := func(namespace string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Name: strings.Clone("settings"), Namespace: namespace,
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply,
				FieldsV1: metav1.NewFieldsV1(`{"f:data":{"f:a":{}}}`),
			}},
		}}
	}
	var reducer Reducer
	a, b := reducer.Reduce(full("a")), reducer.Reduce(full("b"))
	require.Same(t, a.managedFields[0].FieldsV1, b.managedFields[0].FieldsV1)
	require.Same(t, unsafe.StringData(a.Name), unsafe.StringData(b.Name))
}
