// Package render turns NamespaceTemplates into the objects of a namespace, in two steps. Compile runs kustomize, once
// for a template and set of overlays. Stamp writes a namespace's values into the result, which takes microseconds: a
// user who creates a namespace never waits for kustomize.
//
// It follows "Apply the template" of the Namespace Population proposal. Tokens are replaced in string values of the
// parsed tree only, never in keys and never in YAML text: a user name may hold quotes and newlines.
package render

import (
	"encoding/base64"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Compiled is a template with some of its overlays, ready to be stamped. It is safe for concurrent use.
type Compiled struct {
	// Template is the name of the NamespaceTemplate.
	Template string
	objects  []compiledObject
}

type compiledObject struct {
	unstructured.Unstructured
	needsCreator bool
}

// Omission is an object that is left out of a namespace.
type Omission struct {
	Template string
	Kind     schema.GroupVersionKind
	// Name may still hold tokens.
	Name   string
	Reason string
}

// Kinds returns the kinds that the template declares, each once.
func (c *Compiled) Kinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	seen := map[schema.GroupVersionKind]bool{}
	for i := range c.objects {
		if kind := c.objects[i].GroupVersionKind(); !seen[kind] {
			seen[kind] = true
			kinds = append(kinds, kind)
		}
	}
	return kinds
}

// Stamp returns the objects for one namespace, in the template's order. Objects that need a creator who isn't known
// are left out, not rendered with an empty name. It fails when two objects come out the same.
func (c *Compiled) Stamp(values Values) ([]*unstructured.Unstructured, []Omission, error) {
	objects := make([]*unstructured.Unstructured, 0, len(c.objects))
	var omitted []Omission
	seen := map[identity]bool{}
	for i := range c.objects {
		source := &c.objects[i]
		if source.needsCreator && values.Creator == "" {
			omitted = append(omitted, Omission{
				Template: c.Template, Kind: source.GroupVersionKind(), Name: source.GetName(),
				Reason: "it names the namespace's creator, who is not known",
			})
			continue
		}
		object := values.stampObject(&source.Unstructured)
		object.SetNamespace(values.Namespace)
		if reason := reservedName(object); reason != "" {
			omitted = append(omitted,
				Omission{Template: c.Template, Kind: source.GroupVersionKind(), Name: object.GetName(), Reason: reason})
			continue
		}
		id := identityOf(object)
		if seen[id] {
			return nil, nil, fmt.Errorf("template %s: %s is there twice", c.Template, id)
		}
		seen[id] = true
		objects = append(objects, object)
	}
	return objects, omitted, nil
}

// stampObject returns a copy of an object with the tokens in its strings replaced.
func (v Values) stampObject(source *unstructured.Unstructured) *unstructured.Unstructured {
	object := &unstructured.Unstructured{Object: v.stamp(source.Object).(map[string]any)}
	dataFromStringData(object)
	return object
}

// stamp returns a deep copy of a JSON value with the tokens in its strings replaced.
func (v Values) stamp(value any) any {
	switch value := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(value))
		for key, field := range value {
			out[key] = v.stamp(field)
		}
		return out
	case []any:
		out := make([]any, len(value))
		for i, item := range value {
			out[i] = v.stamp(item)
		}
		return out
	case string:
		return v.expand(value)
	}
	return value
}

// dataFromStringData moves a Secret's stringData to data, as the API server would. Nobody owns the data that comes of
// stringData in managedFields, so a change of it could not be seen.
func dataFromStringData(object *unstructured.Unstructured) {
	if object.GroupVersionKind().GroupKind() != (schema.GroupKind{Kind: "Secret"}) {
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

type identity struct {
	schema.GroupKind
	name string
}

func identityOf(object *unstructured.Unstructured) identity {
	return identity{object.GroupVersionKind().GroupKind(), object.GetName()}
}

func (i identity) String() string {
	return fmt.Sprintf("%s %s", i.GroupKind, i.name)
}
