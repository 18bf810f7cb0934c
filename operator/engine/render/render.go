// Package render turns NamespaceTemplates into the objects of a namespace, in two steps:
//
//   - Compile parses a template, applies its overlays with kustomize and checks the result. Cache does this once for a
//     generation of the template and a set of overlays.
//   - Stamp replaces the tokens $(NAMESPACE), $(CREATOR), $(LABEL:key) and $(ANNOTATION:key) in a compiled template by
//     the values of one namespace. It takes microseconds, so that the creation of a namespace never waits for
//     kustomize.
//
// Vet, VetVariants and Warnings report what is wrong with a template before it is stored. Declarations lists its
// objects without compiling it. The package reads no files and no cluster. These invariants hold:
//
//   - Every object is namespace-scoped, and has the namespace and the label with the template's name. Overlays can
//     change neither.
//   - An overlay changes the contents of objects or deletes objects. It never changes their kinds or names.
//   - Tokens are replaced in string values of parsed objects only, never in keys and never in YAML text: a user name
//     may contain quotes and newlines. The value of a token is not searched for tokens.
//   - A namespace that lacks a label or an annotation of a token is an error, never an empty text.
//   - Stamp never changes the compiled template, so one compiled template serves all namespaces.
//   - A template in which one overlay is invalid is invalid in all namespaces.
//   - Labels, annotations and names that nstpl sets itself cannot be declared.
//   - A copy of a source is rendered without its content, which Fill adds. Only the template's author decides which
//     source is copied: the source contains no tokens, and no overlay changes a copy.
package render

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Compiled is a template with some of its overlays applied. It is safe for concurrent use.
type Compiled struct {
	// Template is the name of the NamespaceTemplate.
	Template string
	objects  []compiledObject
	// metadata are labels and annotations of the namespace itself. Values may contain tokens.
	metadata map[MetadataKey]string
	// usedKeys are the labels and annotations of the namespace from which the template renders.
	usedKeys []usedKey
}

// Omission is a declared object that is not created in a namespace.
type Omission struct {
	Template string
	Kind     schema.GroupVersionKind
	// Name may contain tokens.
	Name   string
	Reason string
}

// Kinds returns the kinds of the objects, each once.
func (c *Compiled) Kinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for i := range c.objects {
		if kind := c.objects[i].GroupVersionKind(); !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Stamp returns the objects for one namespace, in the template's order. It omits objects whose name is reserved in the
// namespace, and objects with the token of the creator if the creator is unknown. It returns an error if two objects
// have the same kind and name, and a *MissingError if the namespace lacks a label or an annotation of a token.
//
// Objects that contain no token share their content with other namespaces. Callers must not change it.
func (c *Compiled) Stamp(values Values) ([]Object, []Omission, error) {
	if err := c.checkValues(values); err != nil {
		return nil, nil, err
	}
	objects := make([]Object, 0, len(c.objects))
	var omitted []Omission
	seen := map[ObjectID]bool{}
	for i := range c.objects {
		source := &c.objects[i]
		if source.needsCreator && values.Creator == "" {
			omitted = append(omitted, Omission{
				Template: c.Template, Kind: source.GroupVersionKind(), Name: source.GetName(),
				Reason: "it names the namespace's creator, who is not known",
			})
			continue
		}
		object, err := source.stamp(values)
		if err != nil {
			return nil, nil, fmt.Errorf("template %s: %w", c.Template, err)
		}
		if reason := reservedName(object.Unstructured); reason != "" {
			omitted = append(omitted,
				Omission{Template: c.Template, Kind: source.GroupVersionKind(), Name: object.GetName(), Reason: reason})
			continue
		}
		id := IDOf(object.Unstructured)
		if seen[id] {
			return nil, nil, fmt.Errorf("template %s: %s is declared twice", c.Template, id)
		}
		seen[id] = true
		objects = append(objects, object)
	}
	return objects, omitted, nil
}

// stampObject returns a deep copy of an object with the tokens in its strings replaced.
func (v Values) stampObject(source *unstructured.Unstructured) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: replaceStrings(source.Object, v.expand).(map[string]any)}
	dataFromStringData(object)
	return object
}

// dataFromStringData moves a Secret's stringData to data, as the API server does. If the API server did it,
// managedFields would name no owner of that data, and drift could not be detected.
func dataFromStringData(object *unstructured.Unstructured) {
	if object.GroupVersionKind().GroupKind() != secretKind {
		return
	}
	stringData, ok, err := unstructured.NestedStringMap(object.Object, "stringData")
	if !ok || err != nil {
		return
	}
	data, _, err := unstructured.NestedMap(object.Object, "data")
	if err != nil {
		return
	}
	if data == nil {
		data = map[string]any{}
	}
	for key, value := range stringData {
		data[key] = base64.StdEncoding.EncodeToString([]byte(value))
	}
	delete(object.Object, "stringData")
	if len(data) > 0 {
		object.Object["data"] = maps.Clone(data)
	}
}

// ObjectID identifies an object of a namespace, or a cluster-scoped one. It does not contain the API version.
type ObjectID struct {
	schema.GroupKind
	Name string
}

// IDOf returns the ID of an object.
func IDOf[T interface {
	GroupVersionKind() schema.GroupVersionKind
	GetName() string
}](object T) ObjectID {
	return ObjectID{object.GroupVersionKind().GroupKind(), object.GetName()}
}

// String names the object as kubectl does: rolebinding.rbac.authorization.k8s.io/creator.
func (id ObjectID) String() string { return strings.ToLower(id.GroupKind.String()) + "/" + id.Name }
