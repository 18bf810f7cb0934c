package survey

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func TestRewrittenField(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		declared, stored string
		want             string
	}{
		"as declared":                {`{"data": {"a": "b"}}`, `{"data": {"a": "b"}}`, ""},
		"defaults and other fields":  {`{"spec": {"a": 1}}`, `{"spec": {"a": 1, "b": 2}, "c": 3}`, ""},
		"another value":              {`{"data": {"a": "b"}}`, `{"data": {"a": "rewritten"}}`, ".data.a"},
		"a removed value":            {`{"data": {"a": "b", "c": "d"}}`, `{"data": {"a": "b"}}`, ".data.c"},
		"a removed map":              {`{"data": {"a": "b"}}`, `{}`, ".data"},
		"a removed rule":             {`{"spec": {"ingress": [{"ports": [{"port": 1}]}, {"from": [{"podSelector": {}}]}]}}`, `{"spec": {"ingress": [{"ports": [{"port": 1, "protocol": "TCP"}]}]}}`, ".spec.ingress[1]"},
		"all rules removed":          {`{"spec": {"ingress": [{"ports": [{"port": 1}]}]}}`, `{"spec": {}}`, ".spec.ingress[0]"},
		"a changed item":             {`{"rules": [{"verbs": ["list"]}]}`, `{"rules": [{"verbs": ["get"]}]}`, ".rules[0]"},
		"an added item":              {`{"a": [1]}`, `{"a": [2, 1]}`, ""},
		"quantities":                 {`{"a": "1000m", "b": 0.5, "c": "4096Mi", "d": 1}`, `{"a": "1", "b": "500m", "c": "4Gi", "d": "1"}`, ""},
		"another quantity":           {`{"a": "1000m"}`, `{"a": "2"}`, ".a"},
		"durations and times":        {`{"a": "60m", "b": "2026-01-01T00:00:00.000Z"}`, `{"a": "1h0m0s", "b": "2026-01-01T00:00:00Z"}`, ""},
		"values that mean none":      {`{"a": false, "b": 0, "c": "", "d": null, "e": {}, "f": []}`, `{}`, ""},
		"none for a value":           {`{"a": true}`, `{}`, ".a"},
		"false for true":             {`{"a": true}`, `{"a": false}`, ".a"},
		"stringData of a Secret":     {`{"apiVersion": "v1", "kind": "Secret", "stringData": {"a": "b"}}`, `{"apiVersion": "v1", "kind": "Secret", "data": {"a": "Yg=="}}`, ""},
		"the namespace of an object": {`{"metadata": {"name": "a", "namespace": "b"}}`, `{"metadata": {"name": "a"}}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var declared, stored map[string]any
			require.NoError(t, utiljson.Unmarshal([]byte(test.declared), &declared))
			require.NoError(t, utiljson.Unmarshal([]byte(test.stored), &stored))
			require.Equal(t, test.want, rewrittenField(
				&unstructured.Unstructured{Object: declared}, &unstructured.Unstructured{Object: stored}))
		})
	}
}
