package inventory

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

// Field is the path of a field. The index of an item of a list is one of its elements, such as "0".
type Field []string

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// String returns the path as rules[0].verbs or metadata.labels["example.com/team"].
func (f Field) String() string {
	var text strings.Builder
	for i, element := range f {
		_, err := strconv.Atoi(element)
		switch {
		case err == nil:
			text.WriteString("[" + element + "]")
		case !plainName.MatchString(element):
			text.WriteString("[" + strconv.Quote(element) + "]")
		case i > 0:
			text.WriteString("." + element)
		default:
			text.WriteString(element)
		}
	}
	return text.String()
}

// Difference returns the first declared field that an object in the cluster does not have, or nil if it has all.
func Difference(declared, live *unstructured.Unstructured) Field {
	if contains(live.Object, declared.Object) {
		return nil
	}
	return difference(live.Object, declared.Object)
}

// difference returns the first field in which a live value does not contain a declared one.
func difference(live, declared any) Field {
	switch declared := declared.(type) {
	case map[string]any:
		fields, _ := live.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(declared)) {
			if !contains(fields[key], declared[key]) {
				return append(Field{key}, difference(fields[key], declared[key])...)
			}
		}
	case []any:
		items, _ := live.([]any)
		if len(items) != len(declared) {
			return nil
		}
		for i := range declared {
			if !contains(items[i], declared[i]) {
				return append(Field{strconv.Itoa(i)}, difference(items[i], declared[i])...)
			}
		}
	}
	return nil
}

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
