package schema_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/engine/schema"
)

const ruled = `
spec:
  group: example.com
  names: {kind: Ruled, plural: ruleds}
  scope: Cluster
  versions:
  - name: v1
    schema:
      openAPIV3Schema:
        type: object
        x-kubernetes-validations:
        - {rule: "!has(self.low) || !has(self.high) || self.low <= self.high", message: low is more than high}
        properties:
          low: {type: integer, maximum: 100}
          high: {type: integer}
          name: {type: string, pattern: '^[a-z0-9]([-a-z0-9]*[a-z0-9])?$'}
          size:
            anyOf: [{type: integer}, {type: string}]
            x-kubernetes-int-or-string: true
          parts:
            type: array
            items:
              type: object
              required: [kind]
              x-kubernetes-validations:
              - {rule: "self.kind != 'a' || has(self.a)", message: a is missing, fieldPath: .a}
              properties:
                kind: {type: string, maxLength: 3}
                a: {type: string}
`

// Rules in CEL are evaluated wherever there is no other problem, and only there.
func TestRulesInCELAreCheckedBesideOtherProblems(t *testing.T) {
	t.Parallel()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(ruled), definition))
	catalog, err := schema.New(definition)
	require.NoError(t, err)
	tests := map[string]struct {
		object string
		want   []string
	}{
		"no problem":    {`{low: 1, high: 2, parts: [{kind: a, a: x}]}`, nil},
		"only the rule": {`{low: 2, high: 1}`, []string{": low is more than high"}},
		"an unknown field hides no rule of a part": {
			`{other: 1, low: 2, high: 1, parts: [{kind: a}]}`,
			[]string{": low is more than high", "other: unknown field", "parts[0].a: a is missing"},
		},
		"a problem hides the rules of what contains it": {
			`{low: text, high: 1, parts: [{kind: a}]}`,
			[]string{`low: must be a whole number, not the string "text"`, "parts[0].a: a is missing"},
		},
		"other items are checked": {
			`{parts: [{}, {kind: a}, {kind: [a]}]}`,
			[]string{
				"parts[0].kind: is required", "parts[1].a: a is missing", "parts[2].kind: must be a string, not a list",
			},
		},
		"details are in words": {
			`{low: 101, name: A, size: 1.5, parts: [{kind: long}]}`,
			[]string{
				"low: must be at most 100", "name: is not a DNS label", "parts[0].kind: may not be more than 3 bytes",
				"size: must be a whole number or a string, not the number 1.5",
			},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			data, err := yaml.YAMLToJSON([]byte(test.object))
			require.NoError(t, err)
			object := map[string]any{}
			require.NoError(t, utiljson.Unmarshal(data, &object))
			object["apiVersion"], object["kind"] = "example.com/v1", "Ruled"
			var got []string
			for _, problem := range catalog.Check(object) {
				got = append(got, problem.Path+": "+problem.Message)
			}
			require.Equal(t, test.want, got)
		})
	}
}
