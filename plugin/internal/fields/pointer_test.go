package fields_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/fields"
)

func TestPointer(t *testing.T) {
	decode := func(text string) (object map[string]any) {
		require.NoError(t, json.Unmarshal([]byte(text), &object))
		return object
	}
	for name, test := range map[string]struct {
		// The change is from one object to the other, and the pointer is one into another object.
		from, to, into string
		pointers       []string
	}{
		"a field":              {`{"a":{"b":1}}`, `{"a":{"b":2}}`, `{"a":{"b":1}}`, []string{"/a/b"}},
		"a field that is new":  {`{"a":{}}`, `{"a":{"b":2}}`, `{"a":{}}`, []string{"/a/b"}},
		"a name with a slash":  {`{"a":{"b/c~d":1}}`, `{"a":{"b/c~d":2}}`, `{"a":{"b/c~d":1}}`, []string{"/a/b~1c~0d"}},
		"an item with a key":   {`{"l":[{"name":"x","v":1},{"name":"y","v":1}]}`, `{"l":[{"name":"x","v":1},{"name":"y","v":2}]}`, `{"l":[{"name":"y","v":1}]}`, []string{"/l/0/v"}},
		"an item that is new":  {`{"l":["a"]}`, `{"l":["a","b"]}`, `{"l":["a"]}`, []string{"/l/-"}},
		"an item that is gone": {`{"l":["a","b"]}`, `{"l":["b"]}`, `{"l":["b","a"]}`, []string{"/l/1"}},
		"no such parent":       {`{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":2}}}`, `{"a":{}}`, []string{""}},
		"another structure":    {`{"a":{"b":1}}`, `{"a":{"b":2}}`, `{"a":[1]}`, []string{""}},
		"a scalar on the way":  {`{"a":{"b":{"c":1}}}`, `{"a":{"b":{"c":2}}}`, `{"a":{"b":1}}`, []string{""}},
		"an unknown key":       {`{"l":[{"name":"x","v":1}]}`, `{"l":[{"name":"x","v":2}]}`, `{"l":[]}`, []string{""}},
	} {
		t.Run(name, func(t *testing.T) {
			var pointers []string
			for _, change := range fields.Compare(decode(test.from), decode(test.to)) {
				pointer, _, _ := change.Path.Pointer(decode(test.into))
				pointers = append(pointers, pointer)
			}
			require.Equal(t, test.pointers, pointers)
		})
	}
}
