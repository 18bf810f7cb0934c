package patch

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ client.Patch = Tested{}

func TestTestedPatch(t *testing.T) {
	changes := map[string]string{"example.com/a~b": "new", "c": "new"}
	for name, c := range map[string]struct {
		before map[string]string
		want   string
	}{
		"no annotations": {nil, `[
			{"op": "test", "path": "/metadata/uid", "value": "1"},
			{"op": "test", "path": "/metadata/annotations", "value": null},
			{"op": "add", "path": "/metadata/annotations", "value": {"example.com/a~b": "new", "c": "new"}}]`},
		"other annotations": {map[string]string{"d": "old"}, `[
			{"op": "test", "path": "/metadata/uid", "value": "1"},
			{"op": "test", "path": "/metadata/annotations/c", "value": null},
			{"op": "test", "path": "/metadata/annotations/e", "value": null},
			{"op": "test", "path": "/metadata/annotations/example.com~1a~0b", "value": null},
			{"op": "add", "path": "/metadata/annotations/c", "value": "new"},
			{"op": "add", "path": "/metadata/annotations/example.com~1a~0b", "value": "new"}]`},
		"one of the keys, and an empty value": {map[string]string{"example.com/a~b": "old", "c": "", "e": "old"}, `[
			{"op": "test", "path": "/metadata/uid", "value": "1"},
			{"op": "test", "path": "/metadata/annotations/c", "value": ""},
			{"op": "test", "path": "/metadata/annotations/e", "value": "old"},
			{"op": "test", "path": "/metadata/annotations/example.com~1a~0b", "value": "old"},
			{"op": "add", "path": "/metadata/annotations/c", "value": "new"},
			{"op": "add", "path": "/metadata/annotations/example.com~1a~0b", "value": "new"}]`},
	} {
		t.Run(name, func(t *testing.T) {
			patch := Tested{}.Test("/metadata/uid", types.UID("1")).SetIn("/metadata/annotations", c.before,
				changes, "c", "e")
			data, err := patch.Data(nil)
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(data))
			require.Equal(t, types.JSONPatchType, patch.Type())
		})
	}
}

// Change touches no key that is the same before and after, and creates a map only where there still is none.
func TestChangeOfAMap(t *testing.T) {
	const path = "/metadata/annotations"
	for name, test := range map[string]struct {
		patch Tested
		want  string
	}{
		"changed": {
			Tested{}.TestIn(path, map[string]string{"a/b": "old"}, "a/b", "d").
				Change(path, map[string]string{"a/b": "old", "c": "x", "e": "x"}, map[string]string{"c": "x", "e": "", "f": "y"}),
			`[{"op": "test", "path": "/metadata/annotations/a~1b", "value": "old"},
			{"op": "test", "path": "/metadata/annotations/d", "value": null},
			{"op": "remove", "path": "/metadata/annotations/a~1b", "value": null},
			{"op": "add", "path": "/metadata/annotations/e", "value": ""},
			{"op": "add", "path": "/metadata/annotations/f", "value": "y"}]`,
		},
		"created": {
			Tested{}.TestIn(path, nil, "a", "b").Change(path, nil, map[string]string{"a": "x"}),
			`[{"op": "test", "path": "/metadata/annotations", "value": null},
			{"op": "test", "path": "/metadata/annotations", "value": null},
			{"op": "add", "path": "/metadata/annotations", "value": {"a": "x"}}]`,
		},
		"unchanged": {
			Tested{}.TestIn(path, nil).Change(path, map[string]string{"a": "x"}, map[string]string{"a": "x"}).
				Change(path, nil, map[string]string{}),
			"[]",
		},
	} {
		t.Run(name, func(t *testing.T) {
			data, err := test.patch.Data(nil)
			require.NoError(t, err)
			require.JSONEq(t, test.want, string(data))
		})
	}
}
