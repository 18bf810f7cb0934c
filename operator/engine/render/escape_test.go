package render

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestYAMLParsersReadEscapedJSONAsTheSameValues(t *testing.T) {
	for r := rune(1); r <= 0x10ffff; r++ {
		if r >= 0xd800 && r < 0xe000 || r > 0x2100 && r < 0xfe00 || r > 0x1ffff {
			continue
		}
		want := map[string]any{"name": "a" + string(r) + "b"}
		data, err := json.Marshal(want)
		require.NoError(t, err)
		got := map[string]any{}
		require.NoError(t, yaml.Unmarshal(EscapeJSON(data), &got), "U+%04X", r)
		require.Equal(t, want, got, "U+%04X", r)
	}
}
