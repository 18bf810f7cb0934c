package diff

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	kubectldiff "k8s.io/kubectl/pkg/cmd/diff"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// displayed returns the two sides of an object for display: with masked Secrets, and without the metadata of the API
// server and of the operator. If the sides differ only in the operator's annotations, these annotations are kept.
func displayed(sides survey.Sides) (from, to *unstructured.Unstructured, err error) {
	annotations := []string{v1alpha1.HashAnnotation, v1alpha1.UnownedAnnotation}
	live, stored := withoutServerFields(sides.Live, annotations...), withoutServerFields(sides.Stored, annotations...)
	if reflect.DeepEqual(live, stored) {
		live, stored = withoutServerFields(sides.Live), withoutServerFields(sides.Stored)
	}
	return maskSecrets(live, stored)
}

// withoutServerFields returns a copy of an object without the metadata that the API server sets and without the given
// annotations.
func withoutServerFields(object *unstructured.Unstructured, annotations ...string) *unstructured.Unstructured {
	if object == nil {
		return nil
	}
	stripped := object.DeepCopy()
	for _, field := range []string{"managedFields", "generation", "resourceVersion", "uid", "creationTimestamp"} {
		unstructured.RemoveNestedField(stripped.Object, "metadata", field)
	}
	for _, annotation := range annotations {
		unstructured.RemoveNestedField(stripped.Object, "metadata", "annotations", annotation)
	}
	if len(stripped.GetAnnotations()) == 0 {
		stripped.SetAnnotations(nil)
	}
	return stripped
}

// withoutRecords returns a copy of an object without the label and the annotations in which the operator records what
// it applied.
func withoutRecords(object *unstructured.Unstructured) *unstructured.Unstructured {
	stripped := object.DeepCopy()
	for _, annotation := range []string{
		v1alpha1.HashAnnotation, v1alpha1.UnownedAnnotation, v1alpha1.AdoptedAnnotation,
	} {
		unstructured.RemoveNestedField(stripped.Object, "metadata", "annotations", annotation)
	}
	unstructured.RemoveNestedField(stripped.Object, "metadata", "labels", v1alpha1.TemplateNameLabel)
	if len(stripped.GetAnnotations()) == 0 {
		stripped.SetAnnotations(nil)
	}
	if len(stripped.GetLabels()) == 0 {
		stripped.SetLabels(nil)
	}
	return stripped
}

// withoutStatus returns a copy of an object without its status.
func withoutStatus(object *unstructured.Unstructured) *unstructured.Unstructured {
	if object == nil {
		return nil
	}
	stripped := object.DeepCopy()
	delete(stripped.Object, "status")
	return stripped
}

// maskSecrets masks the values of Secrets, also in the annotation of "kubectl apply". The masks show which values
// differ.
func maskSecrets(live, stored *unstructured.Unstructured) (from, to *unstructured.Unstructured, err error) {
	if !isSecret(live) && !isSecret(stored) {
		return live, stored, nil
	}
	masker, err := kubectldiff.NewMasker(asObject(live), asObject(stored))
	if err != nil {
		return nil, nil, err
	}
	from, _ = masker.From().(*unstructured.Unstructured)
	to, _ = masker.To().(*unstructured.Unstructured)
	for _, side := range []*unstructured.Unstructured{from, to} {
		if side == nil {
			continue
		}
		unstructured.RemoveNestedField(side.Object, "stringData")
		if _, ok := side.GetAnnotations()[corev1.LastAppliedConfigAnnotation]; ok {
			side.SetAnnotations(labels.Merge(side.GetAnnotations(),
				map[string]string{corev1.LastAppliedConfigAnnotation: "***"}))
		}
	}
	return from, to, nil
}

func isSecret(object *unstructured.Unstructured) bool {
	return object != nil &&
		object.GroupVersionKind().GroupKind() == corev1.SchemeGroupVersion.WithKind("Secret").GroupKind()
}

// asObject returns a nil interface for a nil pointer.
func asObject(u *unstructured.Unstructured) runtime.Object {
	if u == nil {
		return nil
	}
	return u
}
