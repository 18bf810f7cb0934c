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
		"equal":                {`{"a": {"b": [1, "c"]}}`, `{"a": {"b": [1, "c"]}}`, true},
		"undeclared fields":    {`{"a": {"b": 1, "c": 2}, "d": 3}`, `{"a": {"b": 1}}`, true},
		"defaults in items":    {`{"a": [{"port": 80, "protocol": "TCP"}]}`, `{"a": [{"port": 80}]}`, true},
		"another value":        {`{"a": {"b": 2}}`, `{"a": {"b": 1}}`, false},
		"a missing field":      {`{"a": {}}`, `{"a": {"b": 1}}`, false},
		"an additional item":   {`{"a": [1, 2]}`, `{"a": [1]}`, false},
		"a missing item":       {`{"a": []}`, `{"a": [1]}`, false},
		"a missing list":       {`{}`, `{"a": [1]}`, false},
		"a missing empty map":  {`{}`, `{"a": {}}`, true},
		"a missing empty list": {`{}`, `{"a": []}`, true},
		"null":                 {`{}`, `{"a": null}`, true},
		"a string, not a map":  {`{"a": "b"}`, `{"a": {}}`, false},
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
