package cluster

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNextChunk(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text, token string
		ok          bool
	}{
		"custom resources": {
			`{"apiVersion":"v1","items":[{"metadata":{"name":"a"}}],"kind":"L","metadata":{"continue":"t","resourceVersion":"5"}}` +
				"\n", "t", true,
		},
		"the last chunk":            {`{"items":[{"metadata":{"name":"a"}}],"metadata":{"resourceVersion":"5"}}`, "", true},
		"no items":                  {`{"kind":"L","metadata":{"continue":"t"},"items":[]}`, "t", true},
		"metadata before items":     {`{"metadata":{"continue":"t"},"items":[{"metadata":{"continue":"u"}}]}`, "", false},
		"metadata in another field": {`{"metadata":{"continue":"t"},"x":{"metadata":{"continue":"u"}}}`, "", false},
		"metadata in a text": {
			`{"items":[],"metadata":{"continue":"t"},"x":"\"metadata\":{\"continue\":\"u\"}}"}`, "t", true,
		},
		"no metadata":   {`{"items":[]}`, "", false},
		"not a list":    {`[{"metadata":{"continue":"t"}}]`, "", false},
		"protobuf":      {"k8s\x00" + `{"metadata":{"continue":"t"}}`, "", false},
		"a broken text": {`{"items":[],"metadata":{"continue":"t"`, "", false},
		"empty":         {"", "", false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			token, ok := nextChunk([]byte(test.text))
			require.Equal(t, test.ok, ok)
			require.Equal(t, test.token, token)
		})
	}
}

// What nextChunk finds in an object is what a decoder of the whole text finds.
func FuzzNextChunk(f *testing.F) {
	for _, text := range []string{
		`{"items":[{"metadata":{"name":"a"}}],"metadata":{"continue":"t"}}`,
		`{"metadata":{"continue":"t"},"items":[{"metadata":{"continue":"u"}}]}`,
		`{"metadata":{"continue":"t"},"x":{"metadata":{}}}`, `{"items":["\"metadata\":{\"continue\":\"u\"}}"]}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		fields := map[string]json.RawMessage{}
		if json.Unmarshal([]byte(text), &fields) != nil {
			return
		}
		list, err := json.Marshal(fields) // no field is there twice
		require.NoError(t, err)
		token, ok := nextChunk(list)
		if decoded, err := decode[struct{}](list); ok && err == nil { // an item may be anything but an object
			require.Equal(t, decoded.Metadata.Continue, token)
		}
	})
}
