package populate

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// ownEntry returns the managedFields entry of what this project applied to an object, or nil. Whoever changes a field
// takes it out of this entry, so the entry shows drift.
func ownEntry(object metav1.Object) *metav1.ManagedFieldsEntry {
	entries := object.GetManagedFields()
	for i := range entries {
		if IsOwnEntry(&entries[i]) {
			return &entries[i]
		}
	}
	return nil
}

// Ours reports whether this project created an object, so that it may delete it. Users can write managedFields, so
// losing its entry there does not make an object a user's: admission guards the label and the annotations that say
// whose it is. An object on which another manager owns the label is a copy.
func Ours(object metav1.Object) bool {
	if recordOf(object).adopted {
		return false
	}
	if ownEntry(object) != nil {
		return true
	}
	return object.GetLabels()[v1alpha1.TemplateNameLabel] != "" &&
		object.GetAnnotations()[v1alpha1.HashAnnotation] != "" &&
		!slices.ContainsFunc(object.GetManagedFields(), ownsLabel)
}

// SameRecord reports whether what this project says of an object is the same in both states.
func SameRecord(a, b *metav1.PartialObjectMetadata) bool {
	return a.UID == b.UID && labelOf(a) == labelOf(b) && recordOf(a) == recordOf(b) && Ours(a) == Ours(b) &&
		a.Annotations[v1alpha1.HashAnnotation] == b.Annotations[v1alpha1.HashAnnotation]
}

// ownsLabel reports whether a managedFields entry owns the label that names an object's template.
func ownsLabel(entry metav1.ManagedFieldsEntry) bool {
	owned := fieldSet{}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &owned) != nil {
		return false
	}
	_, owns := owned.child("f:metadata").child("f:labels")["f:"+v1alpha1.TemplateNameLabel]
	return owns
}

// Rewritten reports whether another client wrote the managedFields entry of this project between two states of an
// object, of which none is from an apply of this project. Ordinary changes only take fields out of it.
func Rewritten(before, after metav1.Object) bool {
	old, entry := ownEntry(before), ownEntry(after)
	if entry == nil {
		return false // see Ours
	}
	if old == nil || !old.Time.Equal(entry.Time) {
		return true
	}
	was, is := fieldSet{}, fieldSet{}
	if old.FieldsV1 == nil || entry.FieldsV1 == nil || old.FieldsV1.GetRawString() == entry.FieldsV1.GetRawString() {
		return false
	}
	if json.Unmarshal(old.FieldsV1.GetRawBytes(), &was) != nil ||
		json.Unmarshal(entry.FieldsV1.GetRawBytes(), &is) != nil {
		return true
	}
	return !is.within(was)
}

// within reports whether another set has all fields of this one. A node that lost all children would own everything
// below it, so that is no subset.
func (s fieldSet) within(other fieldSet) bool {
	for key, child := range s {
		there, ok := other[key]
		if emptied := len(child) == 0 && len(there) > 0; !ok || emptied || !child.within(there) {
			return false
		}
	}
	return true
}

// IsOwnEntry reports whether a managedFields entry is about what this project applied.
func IsOwnEntry(entry *metav1.ManagedFieldsEntry) bool {
	return entry.Manager == v1alpha1.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply &&
		entry.Subresource == ""
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
		case "apiVersion", "kind", "status":
			// Nobody owns these by an apply; a status of the main resource the API server drops.
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

// lostMetadata leaves out the fields that the API server keeps no owner of. Some of them are in what kubectl create
// --dry-run prints.
func lostMetadata(metadata map[string]any, owned fieldSet) []string {
	var lost []string
	for _, field := range slices.Sorted(maps.Keys(metadata)) {
		switch field {
		case "name", "namespace", "creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink",
			"uid":
		default:
			lost = append(lost, owned.lost("metadata."+field, "f:"+field, metadata[field])...)
		}
	}
	return lost
}

// expectUnowned returns the record of declared fields that will have no owner: those that the last record names, and
// empty lists, which Kubernetes drops. Most objects need no second write for it.
func expectUnowned(object *Object, record string) string {
	fields := splitFields(record)
	// a Role keeps its empty rules
	if kind := object.GroupVersionKind().GroupKind(); isBuiltIn(kind.Group) && kind != roleKind {
		fields = append(fields, emptyLists("", object.Object)...)
	}
	return joinFields(fields)
}

// emptyLists returns the paths of lists without items, except those in other lists.
func emptyLists(path string, value map[string]any) []string {
	var empty []string
	for field, value := range value {
		switch value := value.(type) {
		case map[string]any:
			empty = append(empty, emptyLists(path+field+".", value)...)
		case []any:
			if len(value) == 0 && !isNeverOwned(path+field) {
				empty = append(empty, path+field)
			}
		}
	}
	return empty
}

// isNeverOwned reports whether a field is one that lostFields passes over.
func isNeverOwned(path string) bool {
	return path == "metadata.managedFields" || strings.HasPrefix(path, "status")
}

// isBuiltIn reports whether a group is one of Kubernetes' own, whose Go types leave out most empty lists. Custom
// resources keep them.
func isBuiltIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// joinFields writes paths as a record: sorted, each once, a line each.
func joinFields(paths []string) string {
	slices.Sort(paths)
	return strings.Join(slices.Compact(paths), "\n")
}

func splitFields(record string) []string {
	return slices.DeleteFunc(strings.Split(record, "\n"), func(path string) bool { return path == "" })
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
		for i, key := range node.itemKeys(value) {
			if name := path + "[" + itemName(key, value[i]) + "]"; key == "" {
				lost = append(lost, name)
			} else {
				lost = append(lost, node.lost(name, key, value[i])...)
			}
		}
	}
	return lost
}

// itemKeys returns, for each item of a list, the key under which it is owned, or "". A key that an item does not
// declare was defaulted by the API server (the protocol of a port): such an item is the one that no other is.
func (s fieldSet) itemKeys(items []any) []string {
	owned := s.ownedItems()
	keys := make([]string, len(items))
	taken := map[string]bool{}
	for i, item := range items {
		for _, candidate := range owned {
			if candidate.is(item) {
				keys[i], taken[candidate.key] = candidate.key, true
				break
			}
		}
	}
	for i, item := range items {
		for _, candidate := range owned {
			if keys[i] == "" && !taken[candidate.key] && candidate.mayBe(item) {
				keys[i], taken[candidate.key] = candidate.key, true
			}
		}
	}
	return keys
}

// ownedItem is an item of a list as FieldsV1 names it: by the fields that are its list's keys, or by its value.
type ownedItem struct {
	key    string
	fields map[string]any
	value  any
}

func (s fieldSet) ownedItems() []ownedItem {
	var items []ownedItem
	for _, key := range slices.Sorted(maps.Keys(s)) {
		item := ownedItem{key: key}
		var err error
		switch kind, text, _ := strings.Cut(key, ":"); kind {
		case "k":
			err = utiljson.Unmarshal([]byte(text), &item.fields)
		case "v":
			err = utiljson.Unmarshal([]byte(text), &item.value)
		default:
			continue
		}
		if err == nil {
			items = append(items, item)
		}
	}
	return items
}

// is reports whether a declared item is the owned one.
func (o ownedItem) is(item any) bool {
	if o.fields == nil {
		return reflect.DeepEqual(o.value, item)
	}
	fields, ok := item.(map[string]any)
	for key, want := range o.fields {
		value, declared := fields[key]
		ok = ok && declared && reflect.DeepEqual(value, want)
	}
	return ok
}

// mayBe reports whether a declared item is the owned one if the API server defaulted the keys that it lacks.
func (o ownedItem) mayBe(item any) bool {
	fields, ok := item.(map[string]any)
	for key, want := range o.fields {
		value, declared := fields[key]
		ok = ok && (!declared || reflect.DeepEqual(value, want))
	}
	return ok && o.fields != nil
}

// itemName names an item in a path: by its key or, if it is not owned, by what is declared.
func itemName(key string, item any) string {
	if key != "" {
		return key[len("k:"):]
	}
	text, err := json.Marshal(item)
	if err != nil || len(text) > 40 {
		return "…"
	}
	return string(text)
}
