package survey

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Paths of metadata that users do not declare.
var (
	// ServerFields are the metadata that the API server sets.
	ServerFields = [][]string{
		{"metadata", "managedFields"}, {"metadata", "generation"}, {"metadata", "resourceVersion"}, {"metadata", "uid"},
		{"metadata", "creationTimestamp"},
	}
	// Records are the label and the annotations in which the operator records what it applied.
	Records = [][]string{
		{"metadata", "labels", v1alpha1.TemplateNameLabel}, {"metadata", "annotations", v1alpha1.HashAnnotation},
		{"metadata", "annotations", v1alpha1.UnownedAnnotation}, {"metadata", "annotations", v1alpha1.AdoptedAnnotation},
	}
)

// Content returns the fields of an object without its status, without what the API server sets, and without the records
// of the operator.
func Content(object *unstructured.Unstructured) map[string]any {
	return Without(WithoutStatus(object), slices.Concat(ServerFields, Records)...).Object
}

// WithoutStatus returns a copy of an object without its status.
func WithoutStatus(object *unstructured.Unstructured) *unstructured.Unstructured {
	return Without(object, []string{"status"})
}

// IsSecret reports whether an object is a Secret. It reports false for nil.
func IsSecret(object *unstructured.Unstructured) bool {
	return object != nil && object.GroupVersionKind().GroupKind() == schema.GroupKind{Kind: "Secret"}
}

// Without returns a copy of an object without some fields, and without empty labels and annotations. It returns nil for
// nil.
func Without(object *unstructured.Unstructured, paths ...[]string) *unstructured.Unstructured {
	if object == nil {
		return nil
	}
	stripped := object.DeepCopy()
	for _, path := range paths {
		unstructured.RemoveNestedField(stripped.Object, path...)
	}
	if len(stripped.GetAnnotations()) == 0 {
		stripped.SetAnnotations(nil)
	}
	if len(stripped.GetLabels()) == 0 {
		stripped.SetLabels(nil)
	}
	return stripped
}
