package render

import (
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// storedSize returns about how many bytes an object needs with the operator's managedFields, rather too many than too
// few.
func storedSize(object *unstructured.Unstructured) int {
	data, err := object.MarshalJSON()
	if err != nil {
		return 0 // cannot happen: the object was read from JSON
	}
	return len(data) + ownedSize(object.Object)
}

// ownedSize returns about how many bytes managedFields need for a value. They repeat each key, and the items of lists.
func ownedSize(value any) int {
	const around = len(`"f:":{},`)
	size := 0
	switch value := value.(type) {
	case map[string]any:
		for key, field := range value {
			size += len(key) + around + ownedSize(field)
		}
	case []any:
		for _, item := range value {
			size += around + ownedSize(item)
			if fields, ok := item.(map[string]any); ok {
				for key, field := range fields {
					size += len(key) + scalarSize(field)
				}
			} else {
				size += scalarSize(item)
			}
		}
	}
	return size
}

func scalarSize(value any) int {
	switch value := value.(type) {
	case map[string]any, []any:
		return 0
	case string:
		return len(value)
	}
	return len(fmt.Sprint(value))
}
