package drift

import (
	"encoding/json"
	"fmt"
	"reflect"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/fields"
)

// operation is an operation of a JSON patch (RFC 6902). Value is not used if Op is "remove".
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// newPatch returns the JSON patch of a template for changes of one of the objects that it declares. Each operation has
// the position of the fields after those before it.
func newPatch(
	template *v1alpha1.NamespaceTemplate, declared *unstructured.Unstructured, changes []fields.Change,
) ([]operation, error) {
	position, object, err := declaration(template, declared)
	if err != nil {
		return nil, err
	}
	base := fmt.Sprintf("/spec/templates/%d", position)
	patch := []operation{
		{"test", base + "/kind", object.GetKind()}, {"test", base + "/metadata/name", object.GetName()},
	}
	for _, change := range changes {
		operations, err := operationsOf(change, object.Object, declared.Object)
		if err != nil {
			return nil, fmt.Errorf("%s of %s/%s is not a field that a patch of template %s can change, because %w: "+
				"edit the template by hand", change.Path, object.GetKind(), object.GetName(), template.Name, err)
		}
		if object, err = apply(operations, object); err != nil {
			return nil, err
		}
		for _, o := range operations {
			o.Path = base + o.Path
			patch = append(patch, o)
		}
	}
	return patch, nil
}

// declaration returns the item of spec.templates that a template renders as the declared object: the one with the same
// name or, if the name has a token, the only one of the kind.
func declaration(
	template *v1alpha1.NamespaceTemplate, declared *unstructured.Unstructured,
) (position int, object *unstructured.Unstructured, err error) {
	var positions []int
	var objects []*unstructured.Unstructured
	for i, raw := range template.Spec.Templates {
		object := &unstructured.Unstructured{}
		if err := utiljson.Unmarshal(raw.Raw, &object.Object); err != nil {
			return 0, nil, err
		}
		switch {
		case object.GroupVersionKind() != declared.GroupVersionKind():
		case object.GetName() == declared.GetName():
			return i, object, nil
		default:
			positions, objects = append(positions, i), append(objects, object)
		}
	}
	if len(objects) != 1 {
		return 0, nil, fmt.Errorf("which object in spec.templates of template %s declares %s/%s is unknown: edit the "+
			"template by hand", template.Name, declared.GetKind(), declared.GetName())
	}
	return positions[0], objects[0], nil
}

// operationsOf returns the operations for a change of an object in a template. They test the value that they change.
// The value must be the declared one: otherwise an overlay or a token decides the field.
func operationsOf(change fields.Change, object, declared map[string]any) ([]operation, error) {
	pointer, value, exists := change.Path.Pointer(object)
	if !exists {
		return nil, errOverlay
	}
	changed := render.Escaped(change.To)
	if change.Added {
		return []operation{{"add", pointer, changed}}, nil
	}
	if _, rendered, _ := change.Path.Pointer(declared); value == nil || !reflect.DeepEqual(value, rendered) {
		return nil, errOverlay
	}
	operations := []operation{{"test", pointer, value}}
	if change.Removed {
		return append(operations, operation{Op: "remove", Path: pointer}), nil
	}
	return append(operations, operation{"replace", pointer, changed}), nil
}

func apply(patch []operation, object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	operations, err := json.Marshal(patch)
	if err != nil {
		return nil, err
	}
	content, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	decoded, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, err
	}
	if content, err = decoded.Apply(content); err != nil {
		return nil, err
	}
	patched := &unstructured.Unstructured{}
	return patched, utiljson.Unmarshal(content, &patched.Object)
}
