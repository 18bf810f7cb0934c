package inventory

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inforce"
	"nstpl.dev/nstpl/operator/engine/render"
)

// ID identifies a cluster-scoped object.
type ID = render.ObjectID

// Kinds of objects that get special treatment.
var (
	namespaceKind = schema.GroupKind{Kind: "Namespace"}
	spaceKind     = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "PolicySpace"}
	roleKind      = schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRole"}
	bindingKind   = schema.GroupKind{Group: rbacv1.GroupName, Kind: "ClusterRoleBinding"}
	templateKind  = schema.GroupKind{Group: v1alpha1.GroupVersion.Group, Kind: "NamespaceTemplate"}
)

// Phase is when objects of a kind are applied: a phase begins when all applies of the phases before it have ended. See
// Apply.Step, and Plan.Hold for what waits if one of them failed. Objects are deleted in the reverse order.
type Phase int

// The phases.
const (
	Cluster Phase = iota
	Templates
	Spaces
	Namespaces
)

// Phases are all phases in the order in which objects are applied.
var Phases = []Phase{Cluster, Templates, Spaces, Namespaces}

// PhaseOf returns the phase of a kind.
func PhaseOf(kind schema.GroupKind) Phase {
	switch kind {
	case templateKind:
		return Templates
	case spaceKind:
		return Spaces
	case namespaceKind:
		return Namespaces
	}
	return Cluster
}

// Declare returns compiled objects with an annotation that holds the hash of each, by which a later commit finds the
// fields that are no longer declared. It does not change the given objects.
func Declare(compiled []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	declared := make([]*unstructured.Unstructured, 0, len(compiled))
	for _, object := range compiled {
		data, err := json.Marshal(object.Object)
		if err != nil {
			return nil, fmt.Errorf("encode %s: %w", render.IDOf(object), err)
		}
		sum := sha256.Sum256(data)
		declared = append(declared, withAnnotation(object, v1alpha1.HashAnnotation, hex.EncodeToString(sum[:8])))
	}
	return declared, nil
}

// withAnnotation returns a copy of an object with one more annotation. The copy shares all fields outside metadata.
func withAnnotation(object *unstructured.Unstructured, key, value string) *unstructured.Unstructured {
	copied := &unstructured.Unstructured{Object: maps.Clone(object.Object)}
	metadata, _ := object.Object["metadata"].(map[string]any)
	copied.Object["metadata"] = maps.Clone(metadata)
	annotations := map[string]string{key: value}
	for k, v := range object.GetAnnotations() {
		if k != key {
			annotations[k] = v
		}
	}
	copied.SetAnnotations(annotations)
	return copied
}

// IsInForce reports whether an object in the cluster has all declared fields, and was applied from this declaration.
func IsInForce(declared, live *unstructured.Unstructured) bool {
	return HashOf(live) == HashOf(declared) && inforce.Difference(declared, live, nil) == nil
}
