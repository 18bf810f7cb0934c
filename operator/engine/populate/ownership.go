package populate

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// ownEntry returns the managedFields entry of what this project applied to an object, or nil. Whoever changes a field
// takes it out of this entry: the API server keeps the book on drift.
func ownEntry(object *metav1.PartialObjectMetadata) *metav1.ManagedFieldsEntry {
	for i := range object.ManagedFields {
		entry := &object.ManagedFields[i]
		if IsOwnEntry(entry) {
			return entry
		}
	}
	return nil
}

// IsOwnEntry tells whether a managedFields entry is about what this project applied.
func IsOwnEntry(entry *metav1.ManagedFieldsEntry) bool {
	return entry.Manager == v1alpha1.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
}

// lostFields returns the paths of declared fields that an entry no longer owns, sorted. It needs no schema: FieldsV1
// itself says where the API server takes a map or a list as a whole.
func lostFields(declared map[string]any, entry *metav1.ManagedFieldsEntry) ([]string, error) {
	owned := fieldSet{}
	if entry.FieldsV1 != nil {
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned); err != nil {
			return nil, err
		}
	}
	var lost []string
	for _, field := range slices.Sorted(maps.Keys(declared)) {
		switch field {
		case "apiVersion", "kind":
		case "metadata":
			if metadata, ok := declared[field].(map[string]any); ok {
				lost = append(lost, lostMetadata(metadata, owned.child("f:metadata"))...)
			}
		default:
			lost = append(lost, owned.lost(field, "f:"+field, declared[field])...)
		}
	}
	return lost, nil
}

// lostMetadata leaves out the fields that identify an object, which have no owner.
func lostMetadata(metadata map[string]any, owned fieldSet) []string {
	var lost []string
	for _, field := range slices.Sorted(maps.Keys(metadata)) {
		if field != "name" && field != "namespace" {
			lost = append(lost, owned.lost("metadata."+field, "f:"+field, metadata[field])...)
		}
	}
	return lost
}

// fieldSet is a node of FieldsV1. Its keys are "f:<name>" for a field, "k:<keys>" for an item of a list with keys,
// "v:<value>" for an item of a set and "." for the node itself. A node with nothing below it is owned as a whole.
type fieldSet map[string]fieldSet

func (s fieldSet) child(key string) fieldSet {
	return s[key]
}

// lost returns the paths below a declared value that are not owned, where key is the value's key in s.
func (s fieldSet) lost(path, key string, value any) []string {
	node, ok := s[key]
	if fields, isMap := value.(map[string]any); !ok && (!isMap || len(fields) == 0) {
		return []string{path}
	}
	if ok && len(node) == 0 {
		return nil
	}
	var lost []string
	switch value := value.(type) {
	case map[string]any:
		for _, field := range slices.Sorted(maps.Keys(value)) {
			lost = append(lost, node.lost(path+"."+field, "f:"+field, value[field])...)
		}
	case []any:
		for _, item := range value {
			itemKey, name := node.itemKey(item)
			if itemKey == "" {
				lost = append(lost, path+name)
				continue
			}
			lost = append(lost, node.lost(path+name, itemKey, item)...)
		}
	}
	return lost
}

// itemKey returns the key under which a list item is owned, or "", and a name for it in a path.
func (s fieldSet) itemKey(item any) (key, name string) {
	for _, key := range slices.Sorted(maps.Keys(s)) {
		kind, text, _ := strings.Cut(key, ":")
		switch kind {
		case "v":
			var value any
			if json.Unmarshal([]byte(text), &value) == nil && sameJSON(value, item) {
				return key, "[" + text + "]"
			}
		case "k":
			var keys map[string]any
			fields, ok := item.(map[string]any)
			if ok && json.Unmarshal([]byte(text), &keys) == nil && hasKeys(fields, keys) {
				return key, "[" + text + "]"
			}
		}
	}
	text, err := json.Marshal(item)
	if err != nil || len(text) > 40 {
		return "", "[…]"
	}
	return "", "[" + string(text) + "]"
}

// hasKeys tells whether an item has the values of a list's keys. One that it does not declare was defaulted by the API
// server (the protocol of a port).
func hasKeys(item, keys map[string]any) bool {
	some := false
	for key, want := range keys {
		value, ok := item[key]
		if !ok {
			continue
		}
		if !sameJSON(value, want) {
			return false
		}
		some = true
	}
	return some
}

func sameJSON(a, b any) bool {
	return reflect.DeepEqual(number(a), number(b))
}

// number makes integers comparable with what encoding/json decodes.
func number(value any) any {
	if integer, ok := value.(int64); ok {
		return float64(integer)
	}
	return value
}

// Ours tells whether this project created an object, so that it may delete it.
func Ours(object *metav1.PartialObjectMetadata) bool {
	return ownEntry(object) != nil && !adopted(object)
}
