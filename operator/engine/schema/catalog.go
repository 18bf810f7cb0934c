package schema

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Problem is why the API server would reject an object.
type Problem struct {
	// Path is the path of the field in the object, such as spec.hard[pods] or spec.containers[0].image.
	Path string
	// Message says what is wrong with the field.
	Message string
	// Remedy says what to do about it, or is "".
	Remedy string
}

// Catalog holds the schemas of kinds. It is safe for concurrent use.
type Catalog struct{}

// New returns the schemas of the kinds of Kubernetes and of the kinds that crds define. It returns an error if one of
// crds is invalid.
func New(crds ...*apiextensionsv1.CustomResourceDefinition) (*Catalog, error) {
	return &Catalog{}, nil
}

// Knows reports whether the catalog has the schema of a kind.
func (c *Catalog) Knows(kind schema.GroupVersionKind) bool {
	return false
}

// Check returns the problems of an object. It returns none for an object of a kind that the catalog does not know.
func (c *Catalog) Check(object map[string]any) []Problem {
	return nil
}
