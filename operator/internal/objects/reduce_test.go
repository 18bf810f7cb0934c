package objects

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
)

var configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// full returns the metadata of an object as the API server sends it.
func full(namespace string) *metav1.PartialObjectMetadata {
	own := metav1.NewFieldsV1(`{"f:data":{"f:a":{}}}`)
	other := metav1.NewFieldsV1(`{"f:data":{"f:b":{}}}`)
	return &metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{APIVersion: "meta.k8s.io/v1", Kind: "PartialObjectMetadata"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "settings", Namespace: namespace, UID: "uid", ResourceVersion: "7", Generation: 3,
			CreationTimestamp: metav1.NewTime(time.Unix(1, 0)),
			Labels:            map[string]string{v1alpha1.TemplateNameLabel: "defaults", "app": "x"},
			Annotations: map[string]string{
				v1alpha1.HashAnnotation: "hash", v1alpha1.AdoptedAnnotation: "true",
				v1alpha1.UnownedAnnotation: "data.c", "big": "value",
			},
			ManagedFields: []metav1.ManagedFieldsEntry{
				{Manager: v1alpha1.FieldManager, Operation: metav1.ManagedFieldsOperationApply, FieldsV1: own},
				{Manager: "kubectl-edit", Operation: metav1.ManagedFieldsOperationUpdate, FieldsV1: other},
			},
		},
	}
}

// reduced returns the reduced metadata of a ConfigMap.
func reduced(full *metav1.PartialObjectMetadata) *metav1.PartialObjectMetadata {
	return new(populate.Reducer).Reduce(full).Metadata(metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"})
}

func TestReducedMetadataContainsOnlyWhatPlansRead(t *testing.T) {
	reduced := reduced(full("a"))
	require.Equal(t, configMap, reduced.GroupVersionKind())
	require.Equal(t, "a/settings uid 7",
		reduced.Namespace+"/"+reduced.Name+" "+string(reduced.UID)+" "+reduced.ResourceVersion)
	require.Equal(t, map[string]string{v1alpha1.TemplateNameLabel: "defaults"}, reduced.Labels)
	require.Equal(t, map[string]string{
		v1alpha1.HashAnnotation: "hash", v1alpha1.AdoptedAnnotation: "true", v1alpha1.UnownedAnnotation: "data.c",
	}, reduced.Annotations)
	require.JSONEq(t, `{"f:data":{"f:a":{}}}`, ownFields(reduced))
	require.Len(t, reduced.ManagedFields, 2, "the reason of drift names the other managers")
	require.Nil(t, reduced.ManagedFields[1].FieldsV1)
	require.False(t, populate.Ours(reduced))
}

func TestOnlyAChangedRecordCanBeDrift(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*metav1.PartialObjectMetadata)
		same   bool
	}{
		"the status changed": {func(o *metav1.PartialObjectMetadata) { o.ResourceVersion = "8" }, true},
		"a field of another manager changed": {func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields[1].FieldsV1 = metav1.NewFieldsV1(`{}`)
		}, true},
		"another label changed": {func(o *metav1.PartialObjectMetadata) { o.Labels["app"] = "y" }, true},
		"an owned field changed": {func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields[0].FieldsV1 = metav1.NewFieldsV1(`{}`)
		}, false},
		"the entry was removed": {func(o *metav1.PartialObjectMetadata) {
			o.ManagedFields = o.ManagedFields[1:]
		}, false},
		"the template's label changed": {func(o *metav1.PartialObjectMetadata) {
			o.Labels[v1alpha1.TemplateNameLabel] = "other"
		}, false},
		"the hash changed": {func(o *metav1.PartialObjectMetadata) {
			o.Annotations[v1alpha1.HashAnnotation] = "forged"
		}, false},
		"the annotation for adoption was removed": {func(o *metav1.PartialObjectMetadata) {
			delete(o.Annotations, v1alpha1.AdoptedAnnotation)
		}, false},
		"another object has the name": {func(o *metav1.PartialObjectMetadata) { o.UID = "other" }, false},
		"the object is being deleted": {func(o *metav1.PartialObjectMetadata) {
			o.DeletionTimestamp = &metav1.Time{Time: time.Unix(2, 0)}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := full("a")
			c.change(changed)
			require.Equal(t, c.same, sameRecord(reduced(full("a")), reduced(changed)))
		})
	}
}
