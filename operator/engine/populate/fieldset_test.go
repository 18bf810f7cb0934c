package populate

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// FuzzParseFieldSet checks that FieldsV1 is parsed as package json parses it.
func FuzzParseFieldSet(f *testing.F) {
	for _, text := range []string{
		`{}`, `{"f:data":{}}`, `{"f:metadata":{"f:labels":{".":{},"f:a":{}}},"f:spec":{"f:ports":{"k:{\"port\":80}":{".":{}}}}}`,
		`{"f:a":{},"f:a":{"f:b":{}}}`, `{"f:a":null}`, `{"f:ä":{}}`, ` { "f:a" : {} } `, `{"f:a":{}`, `{"f:a":{},}`, `{,"f:a":{}}`,
		`{"f:a":{}}{}`, `{"f:a":1}`, `[]`, `null`, ``, `{"f:a"}`, "{\"f:\x01\":{}}", "{\"f:\xff\":{}}", "{\"f:a\":{}}\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := fieldSet{}
		wantErr := json.Unmarshal([]byte(text), &want)
		set, err := parseFieldSet(text)
		require.Equal(t, wantErr, err)
		if err == nil {
			require.Equal(t, withoutEmpty(want), withoutEmpty(set))
		}
	})
}

// withoutEmpty returns a set in which every node without children is nil.
func withoutEmpty(set fieldSet) fieldSet {
	if len(set) == 0 {
		return nil
	}
	same := fieldSet{}
	for key, child := range set {
		same[key] = withoutEmpty(child)
	}
	return same
}

func TestHasAnnotation(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		`{"f:metadata":{"f:annotations":{".":{},"f:policy.nstpl.dev/applied-hash":{}}}}`: true,
		`{"f:metadata":{"f:annotations":{".":{},"f:other":{}}}}`:                         false,
		`{"f:metadata":{"f:annotations":{}}}`:                                            true, // all of them
		`{"f:metadata":{}}`:                                                              false,
		`{}`:                                                                             false,
	} {
		set, err := parseFieldSet(text)
		require.NoError(t, err)
		require.Equal(t, want, set.hasAnnotation(v1alpha1.HashAnnotation), text)
		require.Equal(t, want, len(set.lostOf(map[string]any{"metadata": map[string]any{
			"annotations": map[string]any{v1alpha1.HashAnnotation: ""},
		}})) == 0, text)
	}
}
