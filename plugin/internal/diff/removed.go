package diff

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/gitops"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// ofCommands are annotations that a tree does not declare: nstpl-sync or "hydrate --adopt" adds them to what it does.
var ofCommands = []string{v1alpha1.HashAnnotation, v1alpha1.TreeMetadataAnnotation, v1alpha1.AdoptAnnotation}

// syncManager is the field manager of nstpl-sync.
const syncManager = "nstpl-sync"

// withoutRemoved returns the labels or annotations that a live object keeps when the tree that declares it is applied
// again: all but those that the tree applied to it before and no longer declares. Kubectl and Argo CD record what they
// applied in an annotation, which nstpl-sync does not read, nstpl-sync records it for Namespaces, and server-side apply
// has managedFields. The field is render.Labels or render.Annotations.
func withoutRemoved(field string, live, declared *unstructured.Unstructured, by follower) map[string]string {
	kept, wanted := metadataOf(live, field), metadataOf(declared, field)
	lastApplied := &unstructured.Unstructured{}
	if by == nil {
		// Without the annotation, kubectl removes nothing. The API server does not check its content.
		annotation := live.GetAnnotations()[corev1.LastAppliedConfigAnnotation]
		_ = utiljson.Unmarshal([]byte(annotation), &lastApplied.Object)
	}
	applied, owned := metadataOf(lastApplied, field), soleApplied(field, live, by)
	leftovers := inventory.Leftovers(declared, live)[field]
	ofTemplates := populate.RecordedMetadata(live.GetAnnotations())
	for key := range kept {
		_, isDeclared := wanted[key]
		_, isOfTemplate := ofTemplates[render.MetadataKey{Field: field, Key: key}] // the operator sets it again
		if isDeclared || isOfTemplate || slices.Contains(ofCommands, key) || gitops.Adds(live, key) {
			continue
		}
		_, wasApplied := applied[key]
		if wasApplied || slices.Contains(leftovers, key) || owned[key] {
			delete(kept, key)
		}
	}
	return kept
}

// metadataOf returns a copy of the labels or annotations of an object.
func metadataOf(object *unstructured.Unstructured, field string) map[string]string {
	values, _, _ := unstructured.NestedStringMap(object.Object, "metadata", field) // a record may be invalid
	return values
}

// soleApplied returns the labels or annotations of an object that server-side apply removes when the tree is applied
// without them: those that only the manager that applied the label of the tree owns, or only nstpl-sync.
func soleApplied(field string, live *unstructured.Unstructured, by follower) map[string]bool {
	type owned struct {
		Metadata map[string]map[string]any `json:"f:metadata"`
	}
	keys, owners := map[string]bool{}, map[string]int{}
	for _, entry := range live.GetManagedFields() {
		var of owned
		if entry.FieldsV1 == nil || utiljson.Unmarshal(entry.FieldsV1.GetRawBytes(), &of) != nil {
			continue
		}
		_, isOfTree := of.Metadata["f:"+render.Labels]["f:"+v1alpha1.TreeLabel]
		isOfTree = isOfTree && (by == nil || entry.Manager == syncManager) &&
			entry.Operation == metav1.ManagedFieldsOperationApply
		for name := range of.Metadata["f:"+field] {
			key := strings.TrimPrefix(name, "f:")
			keys[key] = keys[key] || isOfTree
			owners[key]++
		}
	}
	maps.DeleteFunc(keys, func(key string, isOfTree bool) bool { return !isOfTree || owners[key] > 1 })
	return keys
}
