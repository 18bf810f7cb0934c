package fields

import (
	"encoding/json"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Managers returns the sorted names of the field managers that own a field of an object, or a field below it, according
// to its managedFields. It skips the managers of the status.
func Managers(object *unstructured.Unstructured, path Path) []string {
	var names []string
	for _, entry := range object.GetManagedFields() {
		if entry.Subresource != "status" && owns(entry, object.Object, path) {
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
		if step, ok := stepOf(key); ok && step.identifies(*value) {
			return child, true
		}
	}
	return nil, false
}

// identifies reports whether a step of FieldsV1 leads to an item of a list: by its key fields or by its value.
func (s Step) identifies(item any) bool {
	return s.Keys != nil && s.hasKeys(item) || s.Value != nil && isScalar(item) && s.Value == item
}
