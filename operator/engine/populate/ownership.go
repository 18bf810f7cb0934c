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

// ownEntry returns the managedFields entry that records the fields that nstpl applied to an object, or nil. If another
// client changes a field, the API server removes the field from this entry, so the entry shows drift. Every user may
// apply objects as the field manager nstpl. Only on an object with a template's label does admission protect the entry.
func ownEntry(object metav1.Object) *metav1.ManagedFieldsEntry {
	if object.GetLabels()[v1alpha1.TemplateNameLabel] == "" {
		return nil
	}
	return appliedEntry(object)
}

// appliedEntry is ownEntry for an object that nstpl has just applied: admission may have removed its label.
func appliedEntry(object metav1.Object) *metav1.ManagedFieldsEntry {
	entries := object.GetManagedFields()
	for i := range entries {
		if IsOwnEntry(&entries[i]) {
			return &entries[i]
		}
	}
	return nil
}

// Ours reports whether nstpl created an object, so that nstpl may delete it. Users can write managedFields, so an
// object that lost the entry of nstpl is still recognized by the template's label and the annotations, which admission
// protects. If another manager owns the label, the object is a copy that a user created.
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

// isWrittenByOthers reports whether another client than nstpl wrote to an object, and not only to its status or its
// number of replicas, for which the API server refuses no declaration. An object without a template's label is not
// nstpl's at all.
func isWrittenByOthers(object *metav1.PartialObjectMetadata) bool {
	return object != nil && (labelOf(object) == "" ||
		slices.ContainsFunc(object.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
			return !IsOwnEntry(&entry) && entry.Subresource != "status" && entry.Subresource != "scale"
		}))
}

// SameRecord reports whether two states are of the same object, with the same label, annotations and creator as far as
// nstpl records them, and the same protection from deletion.
func SameRecord(a, b *metav1.PartialObjectMetadata) bool {
	return a.UID == b.UID && labelOf(a) == labelOf(b) && recordOf(a) == recordOf(b) && Ours(a) == Ours(b) &&
		isProtected(a) == isProtected(b) &&
		a.Annotations[v1alpha1.HashAnnotation] == b.Annotations[v1alpha1.HashAnnotation]
}

// ownsLabel reports whether a managedFields entry contains the label that names an object's template.
func ownsLabel(entry metav1.ManagedFieldsEntry) bool {
	owned, err := ownedFields(&entry)
	if err != nil {
		return false
	}
	_, owns := owned.child("f:metadata").child("f:labels")["f:"+v1alpha1.TemplateNameLabel]
	return owns
}

// Rewritten reports whether another client wrote the managedFields entry of nstpl between two states of an object. The
// caller ensures that nstpl itself did not apply the object in between. Ordinary changes only remove fields from the
// entry.
func Rewritten(before, after metav1.Object) bool {
	old, entry := ownEntry(before), ownEntry(after)
	if entry == nil {
		return false // see Ours
	}
	if old == nil || !old.Time.Equal(entry.Time) {
		return true
	}
	if old.FieldsV1 == nil || entry.FieldsV1 == nil || old.FieldsV1.GetRawString() == entry.FieldsV1.GetRawString() {
		return false
	}
	oldFields, oldErr := ownedFields(old)
	newFields, newErr := ownedFields(entry)
	return oldErr != nil || newErr != nil || !newFields.within(oldFields)
}

// IsOwnEntry reports whether a managedFields entry records the fields that nstpl applied.
func IsOwnEntry(entry *metav1.ManagedFieldsEntry) bool {
	return entry.Manager == v1alpha1.FieldManager && entry.Operation == metav1.ManagedFieldsOperationApply &&
		entry.Subresource == ""
}

// lostFields returns the sorted paths of the declared fields that an entry does not own.
func lostFields(declared map[string]any, entry *metav1.ManagedFieldsEntry) ([]string, error) {
	owned, err := ownedFields(entry)
	if err != nil {
		return nil, err
	}
	return owned.lostOf(declared), nil
}

// lostOf returns the sorted paths of the declared fields that are not in the set. It needs no schema, because FieldsV1
// itself shows which maps and lists the API server treats as atomic.
func (s fieldSet) lostOf(declared map[string]any) []string {
	var lost []string
	for field, value := range declared {
		switch field {
		case "apiVersion", "kind", "status":
			// An apply never owns these. The API server drops a status that is not written through the subresource.
		case "metadata":
			if metadata, ok := value.(map[string]any); ok {
				lost = append(lost, below("metadata", lostMetadata(metadata, s.child("f:metadata")))...)
			}
		default:
			lost = append(lost, below(field, s.lost("f:"+field, value))...)
		}
	}
	slices.Sort(lost)
	return lost
}

// below returns the paths below a field.
func below(field string, paths []string) []string {
	for i := range paths {
		paths[i] = field + paths[i]
	}
	return paths
}

// lostMetadata returns the paths below metadata, as lost does. It skips the fields for which the API server never
// records an owner. Templates may contain some of them, because kubectl create --dry-run prints them.
func lostMetadata(metadata map[string]any, owned fieldSet) []string {
	var lost []string
	for field, value := range metadata {
		switch field {
		case "name", "namespace", "creationTimestamp", "generation", "managedFields", "resourceVersion", "selfLink",
			"uid":
		default:
			lost = append(lost, below("."+field, owned.lost("f:"+field, value))...)
		}
	}
	return lost
}

// expectUnowned returns the declared fields that are expected to have no owner after an apply: the fields that the
// object's record lists, and empty lists. If the expectation is right, which it is for most objects, the apply needs no
// second write.
func expectUnowned(object *Object, recorded string) string {
	fields := splitFields(recorded)
	if isBuiltIn(object.GroupVersionKind().Group) {
		fields = append(fields, emptyLists("", object.Object)...)
	}
	return joinFields(fields)
}

// ownedIfEmpty are lists of RBAC and NetworkPolicies that the API server treats as atomic: they have an owner also if
// they are empty.
var ownedIfEmpty = []string{"rules", "subjects", "spec.ingress", "spec.egress"}

// emptyLists returns the paths of lists without items that have no owner. It does not descend into lists.
func emptyLists(path string, value map[string]any) []string {
	var empty []string
	for field, value := range value {
		switch value := value.(type) {
		case map[string]any:
			empty = append(empty, emptyLists(path+field+".", value)...)
		case []any:
			if len(value) == 0 && !isNeverOwned(path+field) && !slices.Contains(ownedIfEmpty, path+field) {
				empty = append(empty, path+field)
			}
		}
	}
	return empty
}

// isNeverOwned reports whether lostFields skips a field.
func isNeverOwned(path string) bool {
	return path == "metadata.managedFields" || strings.HasPrefix(path, "status")
}

// isBuiltIn reports whether an API group belongs to Kubernetes. The Go types of these groups omit most empty lists,
// while custom resources keep them.
func isBuiltIn(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}

// joinFields returns the sorted paths, each once and in a line of its own, as UnownedAnnotation records them.
func joinFields(paths []string) string {
	slices.Sort(paths)
	return strings.Join(slices.Compact(paths), "\n")
}

func splitFields(recorded string) []string {
	return slices.DeleteFunc(strings.Split(recorded, "\n"), func(path string) bool { return path == "" })
}

// lost returns the paths, below a declared value, of its fields that are not owned, in any order. The path of the value
// itself is empty. The key is that of the value in s. Usually all fields are owned, so paths are put together only for
// the others.
func (s fieldSet) lost(key string, value any) []string {
	node, ok := s[key]
	if fields, isMap := value.(map[string]any); !ok && (!isMap || len(fields) == 0) {
		return []string{""}
	}
	if ok && len(node) == 0 {
		return nil
	}
	var lost []string
	switch value := value.(type) {
	case map[string]any:
		for field, value := range value {
			lost = append(lost, below("."+field, node.lost("f:"+field, value))...)
		}
	case []any:
		for i, key := range node.itemKeys(value) {
			name := "[" + itemName(key, value[i]) + "]"
			if key == "" {
				lost = append(lost, name)
			} else {
				lost = append(lost, below(name, node.lost(key, value[i]))...)
			}
		}
	}
	return lost
}

// itemKeys returns, for each item of a list, the key under which it is owned, or "". The API server may have defaulted
// a key field that an item does not declare, such as the protocol of a port. Such an item gets the first matching key
// that no other item has.
func (s fieldSet) itemKeys(items []any) []string {
	owned := s.ownedItems()
	keys := make([]string, len(items))
	assigned := map[string]bool{}
	for i, item := range items {
		for _, candidate := range owned {
			if candidate.equals(item) {
				keys[i], assigned[candidate.key] = candidate.key, true
				break
			}
		}
	}
	for i, item := range items {
		for _, candidate := range owned {
			if keys[i] == "" && !assigned[candidate.key] && candidate.mayEqual(item) {
				keys[i], assigned[candidate.key] = candidate.key, true
			}
		}
	}
	return keys
}

// ownedItem is an item of a list as FieldsV1 identifies it: by its key fields, or by its value.
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

// equals reports whether a declared item is the owned one.
func (o ownedItem) equals(item any) bool {
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

// mayEqual reports whether a declared item may be the owned one, because the API server defaulted its missing key
// fields.
func (o ownedItem) mayEqual(item any) bool {
	fields, ok := item.(map[string]any)
	for key, want := range o.fields {
		value, declared := fields[key]
		ok = ok && (!declared || reflect.DeepEqual(value, want))
	}
	return ok && o.fields != nil
}

// itemName returns the name of an item in a path: its key, or the declared item if it is not owned.
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
