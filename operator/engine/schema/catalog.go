package schema

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

// Problem is why the API server would reject an object.
type Problem struct {
	// Path is the path of the field in the object, such as spec.hard[pods] or spec.containers[0].image. It is "" for
	// the object itself.
	Path string
	// Message says what is wrong with the field.
	Message string
	// Remedy says what to do about it, or is "".
	Remedy string
}

// Catalog holds the schemas of kinds. It is safe for concurrent use. New returns a Catalog; the zero value knows the
// kinds of Kubernetes only.
type Catalog struct {
	custom map[schema.GroupVersionKind]*customKind
	// fields caches the fields of struct types.
	fields sync.Map // map[reflect.Type]map[string]reflect.Type
}

// New returns the schemas of the kinds of Kubernetes and of the kinds that crds define. It returns an error if the
// schema of one of crds is invalid.
func New(crds ...*apiextensionsv1.CustomResourceDefinition) (*Catalog, error) {
	c := &Catalog{custom: map[schema.GroupVersionKind]*customKind{}}
	for _, definition := range crds {
		for i := range definition.Spec.Versions {
			version := &definition.Spec.Versions[i]
			kind, err := newCustomKind(definition, version)
			if err != nil {
				return nil, err
			}
			c.custom[schema.GroupVersionKind{
				Group: definition.Spec.Group, Version: version.Name, Kind: definition.Spec.Names.Kind,
			}] = kind
		}
	}
	return c, nil
}

// Knows reports whether the catalog has the schema of a kind.
func (c *Catalog) Knows(kind schema.GroupVersionKind) bool {
	return c.custom[kind] != nil || typeOf(kind) != nil
}

// Check returns the problems of an object, in the order of their paths. It returns none for an object of a kind that
// the catalog does not know. It does not change the object.
func (c *Catalog) Check(object map[string]any) []Problem {
	apiVersion, _ := object["apiVersion"].(string)
	name, _ := object["kind"].(string)
	kind := schema.FromAPIVersionAndKind(apiVersion, name)
	check := &checker{catalog: c}
	if custom := c.custom[kind]; custom != nil {
		check.custom(custom, object)
	} else if t := typeOf(kind); t != nil {
		check.value(nil, t, object, nil)
	}
	slices.SortStableFunc(check.problems, func(a, b Problem) int { return strings.Compare(a.Path, b.Path) })
	return slices.Compact(check.problems)
}

// typeOf returns the Go type of a kind of Kubernetes, or nil.
func typeOf(kind schema.GroupVersionKind) reflect.Type {
	t := scheme.Scheme.AllKnownTypes()[kind]
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	// Kinds without metadata, such as ListOptions, are not the kinds of objects.
	if metadata, ok := t.FieldByName("ObjectMeta"); !ok || metadata.Type != objectMetaType {
		return nil
	}
	return t
}

var objectMetaType = reflect.TypeFor[metav1.ObjectMeta]()
