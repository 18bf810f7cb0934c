package inventory

import (
	"crypto/sha256"
	"encoding/hex"
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
	if render.IDOf(declared).GroupKind != namespaceKind {
		return declared
	}
	var recorded, entries []string
	existing := map[string]map[string]string{}
	if live != nil {
		recorded, existing = recordedMetadata(live), metadataOf(live)
	}
	for field, values := range metadataOf(declared) {
		for key, value := range values {
			before, existed := existing[field][key]
			isApplied := !existed || before != value || slices.Contains(recorded, entryOf(field, key, value))
			if isApplied && !isRecord(field, key) {
				entries = append(entries, entryOf(field, key, value))
			}
		}
	}
	if len(entries) == 0 {
		return declared
	}
	slices.Sort(entries)
	return withAnnotation(declared, v1alpha1.TreeMetadataAnnotation, strings.Join(entries, ","))
}

// Leftovers returns the labels and annotations that the tree applied to a namespace and that a declaration no longer
// has, by field. Those to which a template or a person has given another value since are not among them.
func Leftovers(declared, live *unstructured.Unstructured) map[string][]string {
	if render.IDOf(declared).GroupKind != namespaceKind {
		return nil
	}
	leftovers := map[string][]string{}
	ofTemplates, recorded := populate.RecordedMetadata(live.GetAnnotations()), recordedMetadata(live)
	wanted := metadataOf(declared)
	for field, values := range metadataOf(live) {
		for key, value := range values {
			_, isDeclared := wanted[field][key]
			_, isOfTemplate := ofTemplates[render.MetadataKey{Field: field, Key: key}]
			isOurs := isRecord(field, key) || slices.Contains(recorded, entryOf(field, key, value))
			if isOurs && !isDeclared && !isOfTemplate {
				leftovers[field] = append(leftovers[field], key)
			}
		}
	}
	return leftovers
}

func recordedMetadata(ns *unstructured.Unstructured) []string {
	return strings.Split(ns.GetAnnotations()[v1alpha1.TreeMetadataAnnotation], ",")
}

// entryOf returns what the record says about a label or an annotation. No key has an equals sign.
func entryOf(field, key, value string) string {
	sum := sha256.Sum256([]byte(value))
	return field + "/" + key + "=" + hex.EncodeToString(sum[:8])
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
