package output

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ObjectRef identifies an object in JSON and YAML, with the same fields in the output of all commands.
type ObjectRef struct {
	// APIVersion is empty if only the kind of the object is known.
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind"`
	// Namespace is empty for a cluster-scoped object.
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
}

// NewObjectRef returns the reference to an object. The version of the kind may be empty if it is unknown.
func NewObjectRef(kind schema.GroupVersionKind, namespace, name string) ObjectRef {
	ref := ObjectRef{Kind: kind.Kind, Namespace: namespace, Name: name}
	if kind.Version != "" {
		ref.APIVersion = kind.GroupVersion().String()
	}
	return ref
}

// ParseObject returns the reference to an object by its name in kubectl's notation, as Object returns it. Kinds are the
// kinds that the object can have; without its kind, the kind is in lower case.
func ParseObject(text, namespace string, kinds []schema.GroupVersionKind) ObjectRef {
	resource, name, _ := strings.Cut(text, "/")
	for _, kind := range kinds {
		if strings.EqualFold(kind.GroupKind().String(), resource) {
			return NewObjectRef(kind, namespace, name)
		}
	}
	return ObjectRef{Kind: resource, Namespace: namespace, Name: name}
}
