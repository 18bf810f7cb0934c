package render

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DropNulls removes the fields of an object that are null: the API server and kubectl take null for a missing field. In
// custom resources null may be a value, so only their metadata and an empty status are changed. Items of lists are
// kept.
func DropNulls(object map[string]any) {
	apiVersion, _ := object["apiVersion"].(string)
	if group, err := schema.ParseGroupVersion(apiVersion); err == nil && BuiltIn(group.Group) {
		dropNullFields(object)
		return
	}
	for _, field := range []string{"metadata", "status"} {
		if object[field] == nil {
			delete(object, field)
		}
	}
	dropNullFields(object["metadata"])
}

func dropNullFields(value any) {
	for inside := range within(value) {
		fields, _ := inside.(map[string]any)
		maps.DeleteFunc(fields, func(_ string, field any) bool { return field == nil })
	}
}
