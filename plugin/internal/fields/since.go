package fields

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Owned is a field that a manager owns.
type Owned struct {
	Path    Path
	Manager string
}

// Since returns the fields that other managers wrote after the last apply of a manager, or in the same second, in the
// order of their paths. It skips the status. It returns none if the manager never applied the object.
func Since(object metav1.Object, manager string) []Owned {
	entries := object.GetManagedFields()
	applied := slices.IndexFunc(entries, func(entry metav1.ManagedFieldsEntry) bool { return isApply(entry, manager) })
	if applied < 0 {
		return nil
	}
	var written []Owned
	for i := range entries {
		entry := &entries[i]
		if entry.Subresource == "status" || isApply(*entry, manager) || entry.Time.Before(entries[applied].Time) {
			continue
		}
		node := owned{}
		if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &node) != nil {
			continue
		}
		node.eachLeaf(nil, func(path Path) { written = append(written, Owned{path, entry.Manager}) })
	}
	slices.SortStableFunc(written, func(a, b Owned) int { return strings.Compare(a.Path.String(), b.Path.String()) })
	return written
}

func isApply(entry metav1.ManagedFieldsEntry, manager string) bool {
	return entry.Manager == manager && entry.Operation == metav1.ManagedFieldsOperationApply && entry.Subresource == ""
}

// eachLeaf calls add for each field below the node that is owned as a whole.
func (o owned) eachLeaf(path Path, add func(Path)) {
	isLeaf := true
	for _, key := range slices.Sorted(maps.Keys(o)) {
		if step, ok := stepOf(key); ok {
			isLeaf = false
			o[key].eachLeaf(path.step(step), add)
		}
	}
	if isLeaf && len(path) > 0 {
		add(path)
	}
}

// stepOf returns the step of a key of FieldsV1. It reports false for the key of the node itself and for an unknown key.
func stepOf(key string) (Step, bool) {
	kind, text, _ := strings.Cut(key, ":")
	switch kind {
	case "f":
		return Step{Field: &text}, true
	case "k":
		var step Step
		values := map[string]any{}
		if utiljson.Unmarshal([]byte(text), &values) != nil {
			return Step{}, false
		}
		for _, field := range slices.Sorted(maps.Keys(values)) {
			step.Keys = append(step.Keys, Key{field, values[field]})
		}
		return step, step.Keys != nil
	case "v":
		var step Step
		err := utiljson.Unmarshal([]byte(text), &step.Value)
		return step, err == nil && step.Value != nil
	case "i":
		index, err := strconv.Atoi(text)
		return Step{Index: index}, err == nil
	}
	return Step{}, false
}
