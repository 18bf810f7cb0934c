package why

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/duration"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/fields"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// addManagers adds which field managers set fields of an object, how and when, the oldest first. It omits the managers
// of the status, but not those that scale it. An entry has a time, but no user: the API server records none.
func addManagers(a *answer, object *unstructured.Unstructured, now time.Time) {
	entries := slices.DeleteFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Subresource == "status"
	})
	slices.SortStableFunc(entries, func(x, y metav1.ManagedFieldsEntry) int {
		return cmp.Compare(timeOf(x).Unix(), timeOf(y).Unix())
	})
	for i := range entries {
		entry := &entries[i]
		by := entry.Manager
		if populate.IsOwnEntry(entry) {
			by += ", the operator"
		}
		text := fmt.Sprintf("%s (%s", by, strings.ToLower(string(entry.Operation)))
		if entry.Time != nil {
			text += ", " + duration.HumanDuration(now.Sub(entry.Time.Time)) + " ago"
		}
		a.add(labelChangedBy, text+"): "+topFields(entry))
	}
}

func timeOf(entry metav1.ManagedFieldsEntry) metav1.Time {
	if entry.Time == nil {
		return metav1.Time{}
	}
	return *entry.Time
}

// topFields returns the names of the fields that an entry owns, down to the second level: "data.a, metadata.labels". An
// entry with many fields is shortened.
func topFields(entry *metav1.ManagedFieldsEntry) string {
	const few = 6
	tree := map[string]map[string]json.RawMessage{}
	if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &tree) != nil {
		return "unknown fields"
	}
	var names []string
	for _, key := range slices.Sorted(maps.Keys(tree)) {
		field := strings.TrimPrefix(key, "f:")
		below := 0
		for _, child := range slices.Sorted(maps.Keys(tree[key])) {
			if name, isField := strings.CutPrefix(child, "f:"); isField {
				names, below = append(names, field+"."+name), below+1
			}
		}
		if below == 0 {
			names = append(names, field)
		}
	}
	return output.WithMore(names[:min(len(names), few)], len(names))
}

// addDrift adds the fields of an object that differ from its declaration, with the field managers that own them. Values
// of Secrets are not shown.
func addDrift(a *answer, sides survey.Sides) {
	if sides.Live == nil || sides.Stored == nil {
		return
	}
	for _, change := range fields.Compare(survey.Content(sides.Live), survey.Content(sides.Stored)) {
		text := change.String()
		if survey.IsSecret(sides.Live) {
			text = change.Path.String()
		}
		managers := slices.DeleteFunc(fields.Managers(sides.Live, change.Path), func(manager string) bool {
			return manager == v1alpha1.FieldManager
		})
		if len(managers) > 0 {
			text += " (set by " + strings.Join(managers, ", ") + ")"
		}
		a.add(labelState, "differs: "+text)
	}
}
