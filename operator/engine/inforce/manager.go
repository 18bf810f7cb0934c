package inforce

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// ManagerOf returns the name of the client, other than that with the given name, that wrote a field of an object last,
// as the object's managedFields say, or "" if they name none.
func ManagerOf(live *unstructured.Unstructured, field Field, self string) string {
	var found metav1.ManagedFieldsEntry
	most := 0
	for _, entry := range live.GetManagedFields() {
		depth := depthOf(entry.FieldsV1, field)
		isLater := found.Time == nil || entry.Time != nil && found.Time.Before(entry.Time)
		if entry.Manager != self && (depth > most || depth > 0 && depth == most && isLater) {
			found, most = entry, depth
		}
	}
	return found.Manager
}

// depthOf returns how many elements of a path are in a set of fields.
func depthOf(set *metav1.FieldsV1, field Field) int {
	var node map[string]any
	if set == nil || json.Unmarshal([]byte(set.GetRawString()), &node) != nil {
		return 0
	}
	for depth, element := range field {
		child, ok := node["f:"+element].(map[string]any)
		if !ok {
			return depth
		}
		node = child
	}
	return len(field)
}
