package survey

import (
	"testing"

	"github.com/stretchr/testify/require"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func TestContains(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		stored, declared string
		want             bool
	}{
		"the same":               {`{"a": {"b": [1, "c"]}}`, `{"a": {"b": [1, "c"]}}`, true},
		"fields of others":       {`{"a": {"b": 1, "c": 2}, "d": 3}`, `{"a": {"b": 1}}`, true},
		"defaults in items":      {`{"a": [{"port": 80, "protocol": "TCP"}]}`, `{"a": [{"port": 80}]}`, true},
		"another value":          {`{"a": {"b": 2}}`, `{"a": {"b": 1}}`, false},
		"a field that is gone":   {`{"a": {}}`, `{"a": {"b": 1}}`, false},
		"an item more":           {`{"a": [1, 2]}`, `{"a": [1]}`, false},
		"an item less":           {`{"a": []}`, `{"a": [1]}`, false},
		"nothing for a list":     {`{}`, `{"a": [1]}`, false},
		"an empty map left out":  {`{}`, `{"a": {}}`, true},
		"an empty list left out": {`{}`, `{"a": []}`, true},
		"null":                   {`{}`, `{"a": null}`, true},
		"a map that is no map":   {`{"a": "b"}`, `{"a": {}}`, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var stored, declared map[string]any
			require.NoError(t, utiljson.Unmarshal([]byte(test.stored), &stored))
			require.NoError(t, utiljson.Unmarshal([]byte(test.declared), &declared))
			require.Equal(t, test.want, contains(stored, declared))
		})
	}
}
