package diff

import (
	"reflect"
	"slices"

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
	paths := slices.Clone(survey.ServerFields)
	for _, annotation := range annotations {
		paths = append(paths, []string{"metadata", "annotations", annotation})
	}
	return survey.Without(object, paths...)
}

// maskSecrets masks the values of Secrets, also in the annotation of "kubectl apply". The masks show which values
// differ.
func maskSecrets(live, stored *unstructured.Unstructured) (from, to *unstructured.Unstructured, err error) {
	if !survey.IsSecret(live) && !survey.IsSecret(stored) {
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

// asObject returns a nil interface for a nil pointer.
func asObject(u *unstructured.Unstructured) runtime.Object {
	if u == nil {
		return nil
	}
	return u
}
