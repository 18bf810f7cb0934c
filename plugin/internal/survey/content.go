package survey

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Content returns the fields of an object without its status, without what the API server sets, and without the records
// of the operator.
func Content(object *unstructured.Unstructured) map[string]any {
	stripped := object.DeepCopy()
	for _, path := range [][]string{
		{"status"}, {"metadata", "managedFields"}, {"metadata", "generation"}, {"metadata", "resourceVersion"},
		{"metadata", "uid"}, {"metadata", "creationTimestamp"},
		{"metadata", "labels", v1alpha1.TemplateNameLabel}, {"metadata", "annotations", v1alpha1.HashAnnotation},
		{"metadata", "annotations", v1alpha1.UnownedAnnotation},
		{"metadata", "annotations", v1alpha1.AdoptedAnnotation},
	} {
		unstructured.RemoveNestedField(stripped.Object, path...)
	}
	if len(stripped.GetAnnotations()) == 0 {
		stripped.SetAnnotations(nil)
	}
	if len(stripped.GetLabels()) == 0 {
		stripped.SetLabels(nil)
	}
	return stripped.Object
}
