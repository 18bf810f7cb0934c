package fields

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime"
)

// Apply returns a copy of an object with changes.
func Apply(t *testing.T, object map[string]any, changes []Change) map[string]any {
	t.Helper()
	changed := any(runtime.DeepCopyJSON(object))
	for _, change := range changes {
		changed = apply(t, changed, change.Path, change)
	}
	return changed.(map[string]any)
}

func apply(t *testing.T, value any, path Path, change Change) any {
	t.Helper()
	if len(path) == 0 {
		require.Equal(t, change.From, value, "%s", change.Path)
		return runtime.DeepCopyJSONValue(change.To)
	}
	step, isLast := path[0], len(path) == 1
	if step.Field != nil {
		fields, name := value.(map[string]any), *step.Field
		_, exists := fields[name]
		require.Equal(t, change.Added && isLast, !exists, "%s", change.Path)
		if isLast && change.Removed {
			require.Equal(t, change.From, fields[name])
			delete(fields, name)
		} else {
			fields[name] = apply(t, fields[name], path[1:], change)
		}
		return fields
	}
	items := value.([]any)
	if isLast && change.Added {
		return slices.Insert(items, change.index, runtime.DeepCopyJSONValue(change.To))
	}
	at := step.find(items)
	require.GreaterOrEqual(t, at, 0, "%s", change.Path)
	if isLast && change.Removed {
		require.Equal(t, change.From, items[at])
		return slices.Delete(items, at, at+1)
	}
	items[at] = apply(t, items[at], path[1:], change)
	return items
}
