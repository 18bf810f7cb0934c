package render

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAppendJSONIsThatOfMarshal(t *testing.T) {
	t.Parallel()
	for _, value := range []any{
		nil, true, false, int64(-7), 7, 1.5, 1e30, "", "plain", "ümläut", `"\\`, "a<b>&c", "\x00\x1f\x7f\b\f\n", "\u2028", "\xff",
		map[string]any(nil), map[string]any{}, []any(nil), []any{}, json.Number("12"), map[string]string{"b": "x", "a": "<"},
		map[string]any{"b": []any{int64(1), "x", nil}, "a": map[string]any{"": "é"}, "é": 1.0, "<": []string{"a"}},
	} {
		want, err := json.Marshal(value)
		require.NoError(t, err)
		have, err := appendJSON(nil, value)
		require.NoError(t, err)
		require.Equal(t, string(want), string(have))
	}
	for _, value := range []any{math.NaN(), []any{math.Inf(1)}, map[string]any{"a": math.NaN()}} {
		_, err := appendJSON(nil, value)
		require.Error(t, err)
	}
}

func FuzzAppendJSON(f *testing.F) {
	f.Add(`{"b": [1, 2.5, "x", null, true], "a": {"<": "\u2028"}}`, "\xff")
	f.Fuzz(func(t *testing.T, text, other string) {
		value := map[string]any{other: other}
		var parsed any
		if json.Unmarshal([]byte(text), &parsed) == nil {
			value["parsed"] = parsed
		}
		want, err := json.Marshal(value)
		require.NoError(t, err)
		have, err := appendJSON(nil, value)
		require.NoError(t, err)
		require.Equal(t, string(want), string(have))
	})
}
