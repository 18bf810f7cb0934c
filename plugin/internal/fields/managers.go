package fields

import (
	"encoding/json"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Managers returns the sorted names of the field managers that own a field of an object, or a field below it, according
// to its managedFields. It skips the managers of subresources, such as the status.
func Managers(object *unstructured.Unstructured, path Path) []string {
	var names []string
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource == "" && owns(entry, object.Object, path) {
			names = append(names, entry.Manager)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// owned is a node of FieldsV1: see https://kubernetes.io/docs/reference/using-api/server-side-apply/. A node without
// children is owned with everything below it.
type owned map[string]owned

func owns(entry metav1.ManagedFieldsEntry, object map[string]any, path Path) bool {
	node := owned{}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &node) != nil || len(node) == 0 {
		return false
	}
	var value any = object
	for _, step := range path {
		if len(node) == 0 {
			return true
		}
		child, ok := node.child(step, &value)
		if !ok {
			return false
		}
		node = child
	}
	return true
}

// child returns the node of a step. Value is the value of the node in the object, and becomes that of the child.
func (o owned) child(step Step, value *any) (owned, bool) {
	if step.Field != nil {
		fields, _ := (*value).(map[string]any)
		*value = fields[*step.Field]
		child, ok := o["f:"+*step.Field]
		return child, ok
	}
	items, _ := (*value).([]any)
	at := step.find(items)
	if at < 0 {
		return nil, false
	}
	*value = items[at]
	for key, child := range o {
		if identifies(key, *value) {
			return child, true
		}
	}
	return nil, false
}

// identifies reports whether a key of FieldsV1 identifies an item: "k:" and its key fields, or "v:" and its value.
func identifies(key string, item any) bool {
	kind, text, _ := strings.Cut(key, ":")
	switch kind {
	case "k":
		fields := map[string]any{}
		if utiljson.Unmarshal([]byte(text), &fields) != nil {
			return false
		}
		var step Step
		for field, value := range fields {
			step.Keys = append(step.Keys, Key{Field: field, Value: value})
		}
		return step.Keys != nil && step.hasKeys(item)
	case "v":
		var value any
		return utiljson.Unmarshal([]byte(text), &value) == nil && isScalar(item) && value == item
	}
	return false
}
