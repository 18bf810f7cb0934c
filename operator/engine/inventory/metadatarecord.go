package inventory

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// withMetadataRecord returns a declared namespace with TreeMetadataAnnotation. The live namespace may be nil.
// Server-side apply would take back only what no other field manager has: every user of a namespace may apply the
// values that it has, or remove all of managedFields. What had the declared value before the tree applied it is not
// recorded, and stays.
func withMetadataRecord(declared, live *unstructured.Unstructured) *unstructured.Unstructured {
	if IDOf(declared).GroupKind != namespaceKind {
		return declared
	}
	var recorded, current []string
	existing := map[string]map[string]string{}
	if live != nil {
		recorded = recordedMetadata(live)
		existing = metadataOf(live)
	}
	for field, values := range metadataOf(declared) {
		for key, value := range values {
			name := field + "/" + key
			before, existed := existing[field][key]
			if !isRecord(field, key) && (!existed || before != value || slices.Contains(recorded, name)) {
				current = append(current, name)
			}
		}
	}
	if len(current) == 0 {
		return declared
	}
	slices.Sort(current)
	return withAnnotation(declared, v1alpha1.TreeMetadataAnnotation, strings.Join(current, ","))
}

// Leftovers returns the labels and annotations that the tree applied to a namespace and that a declaration no longer
// has, by field. Those that a template has set since are not among them.
func Leftovers(declared, live *unstructured.Unstructured) map[string][]string {
	if IDOf(declared).GroupKind != namespaceKind {
		return nil
	}
	leftovers := map[string][]string{}
	ofTemplates := populate.RecordedMetadata(live.GetAnnotations())
	wanted, current := metadataOf(declared), metadataOf(live)
	names := append(recordedMetadata(live), render.Annotations+"/"+v1alpha1.TreeMetadataAnnotation,
		render.Annotations+"/"+v1alpha1.HashAnnotation)
	for _, name := range names {
		field, key, _ := strings.Cut(name, "/")
		_, isDeclared := wanted[field][key]
		_, exists := current[field][key]
		_, isOfTemplate := ofTemplates[render.MetadataKey{Field: field, Key: key}]
		if exists && !isDeclared && !isOfTemplate {
			leftovers[field] = append(leftovers[field], key)
		}
	}
	return leftovers
}

func recordedMetadata(ns *unstructured.Unstructured) []string {
	return slices.DeleteFunc(strings.Split(ns.GetAnnotations()[v1alpha1.TreeMetadataAnnotation], ","),
		func(name string) bool { return name == "" })
}

func metadataOf(object *unstructured.Unstructured) map[string]map[string]string {
	return map[string]map[string]string{
		render.Labels: object.GetLabels(), render.Annotations: object.GetAnnotations(),
	}
}

// isRecord reports whether an annotation is one of those in which nstpl-sync writes what it applied.
func isRecord(field, key string) bool {
	return field == render.Annotations && (key == v1alpha1.HashAnnotation || key == v1alpha1.TreeMetadataAnnotation)
}
