package schema

import (
	"testing"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/manifests/crd"
)

const things = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            x-kubernetes-validations:
            - {rule: "!has(self.limit) || self.limit >= self.size", message: limit must not be less than size}
            properties:
              size: {type: integer, minimum: 1}
              limit: {type: integer}
              mode: {type: string, enum: [Fast, Slow]}
              level: {type: string, default: low, pattern: '^[a-z]+$', maxLength: 5}
              ratio: {type: number}
              enabled: {type: boolean}
              port: {x-kubernetes-int-or-string: true}
              colors: {type: object, additionalProperties: {type: string}}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              parts:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                maxItems: 2
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, selector: {type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}}}}
          status: {type: object, properties: {ready: {type: boolean}}}
`

func definitionOf(t *testing.T, text string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	definition := &apiextensionsv1.CustomResourceDefinition{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), definition))
	return definition
}

func TestCheckCustomKinds(t *testing.T) {
	tests := map[string]struct {
		fields string
		want   []string
	}{
		"valid": {
			"spec: {size: 1, limit: 2, mode: Fast, ratio: 1, port: http, colors: {a: b}, free: {x: [1]}}", nil,
		},
		"a default is valid":      {"spec: {size: 1, level: null}", nil},
		"status is not validated": {"spec: {size: 1}\nstatus: {ready: true}", nil},
		"nothing":                 {"{}", []string{"spec: is required: add it"}},
		"an unknown field": {
			"spec: {size: 1, modes: Fast}", []string{"spec.modes: unknown field: did you mean mode?"},
		},
		"a field too far out": {"size: 1\nspec: {size: 1}", []string{"size: unknown field: move it to spec.size"}},
		"a field too far in": {
			"spec: {size: 1, parts: [{name: a, mode: Fast}]}",
			[]string{"spec.parts[0].mode: unknown field: move it to spec.mode"},
		},
		"metadata": {
			"metadata: {name: a, labels: {a: 1}, anotations: {}}\nspec: {size: 1}",
			[]string{
				"metadata.anotations: unknown field: did you mean annotations?",
				`metadata.labels[a]: must be a string, not the number 1: write it in quotes: "1"`,
			},
		},
		"an enumeration": {
			"spec: {size: 1, mode: fast}", []string{`spec.mode: "fast" is not a supported value: did you mean Fast?`},
		},
		"types": {"spec: {size: '1', limit: 1.5, mode: 1, ratio: a, enabled: 'true', port: true, colors: [], parts: {}}", []string{
			"spec.colors: must be an object, not a list",
			"spec.enabled: must be true or false, not the string \"true\": write true, without quotes",
			"spec.limit: must be a whole number, not the number 1.5",
			"spec.mode: must be a string, not the number 1: write it in quotes: \"1\"",
			"spec.parts: must be a list, not an object: write it as an item of a list, after a dash",
			"spec.port: must be a whole number or a string, not true",
			"spec.ratio: must be a number, not the string \"a\"",
			"spec.size: must be a whole number, not the string \"1\": remove the quotes: 1",
		}},
		"limits": {"spec: {size: 0, level: LOW, parts: [{name: a}, {name: b}, {}]}", []string{
			"spec.level: has characters that are not allowed: match the regular expression ^[a-z]+$",
			"spec.parts: must have at most 2 items",
			"spec.parts[2].name: is required: add it",
			"spec.size: must be at least 1",
		}},
		"a key of a list": {
			"spec: {size: 1, parts: [{name: a}, {name: a}]}",
			[]string{"spec.parts[1]: is declared twice: remove one of them"},
		},
		"a rule in CEL": {"spec: {size: 2, limit: 1}", []string{"spec: limit must not be less than size"}},
	}
	catalog, err := New(definitionOf(t, things))
	require.NoError(t, err)
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.want, lines(catalog.Check(objectOf(t, "example.com/v1 Thing", test.fields))))
		})
	}
}

func TestNewRejectsAnInvalidDefinition(t *testing.T) {
	definition := definitionOf(t, things)
	definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"] = apiextensionsv1.JSONSchemaProps{}
	_, err := New(definition)
	require.ErrorContains(t, err, `customresourcedefinitions "things.example.com": the schema of version v1 is invalid`)
	definition.Spec.Versions[0].Schema = nil
	_, err = New(definition)
	require.ErrorContains(t, err, "it is missing")
}

func TestCheckKindsOfNstpl(t *testing.T) {
	definitions, err := crd.All()
	require.NoError(t, err)
	catalog, err := New(definitions...)
	require.NoError(t, err)
	tests := map[string]struct {
		kind, fields string
		want         []string
	}{
		"a template": {"NamespaceTemplate",
			"spec: {namespace: {labelSelector: {}}, templates: [{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}]}", []string{
				"spec.namespace: unknown field: did you mean namespaces?", "spec.namespaces: is required: add it",
			}},
		"sources with sizes that take long to parse": {"NamespaceTemplate", `spec: {namespaces: {labelSelector: {}}, sources: [
			{apiVersion: v1, kind: Secret, namespace: a, name: a, maxSize: '1e-100'},
			{apiVersion: v1, kind: Secret, namespace: a, name: b, maxSize: '.5e-100'},
			{apiVersion: v1, kind: Secret, namespace: a, name: c, maxSize: 12e4}]}`, []string{
			"spec.sources[0].maxSize: is not a quantity: " + quantityForms,
			"spec.sources[1].maxSize: is not a quantity: " + quantityForms,
		}},
		"limits that take long to parse or to compare": {"PolicySpace", `spec: {quota: {hard: {cpu: '1e-100', memory: '1e+100',
			pods: 1e3, secrets: '2E99', services: '.5', configmaps: '1.', requests.cpu: 500m, requests.memory: +1.5Gi}}}`, []string{
			"spec.quota.hard.cpu: is not a quantity: " + quantityForms,
			"spec.quota.hard.memory: is not a quantity: " + quantityForms,
		}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			object := objectOf(t, "policy.nstpl.dev/v1alpha1 "+test.kind, test.fields)
			require.Equal(t, test.want, lines(catalog.Check(object)))
		})
	}
}

// Every unknown field is one that the API server prunes, and an object without problems has none.
func FuzzUnknownFields(f *testing.F) {
	for _, fields := range []string{
		`{"spec": {"size": 1, "free": {"a": {"b": 1}}, "parts": [{"nam": "a"}]}, "x": 1}`,
		`{"spec": {"colors": {"a.b": "c"}, "parts": [{"selector": {"matchLabel": {}}}]}, "status": {"read": 1}}`,
	} {
		f.Add([]byte(fields))
	}
	catalog, err := New(definitionOf(&testing.T{}, things))
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, data []byte) {
		object := decodeObject(data)
		object["apiVersion"], object["kind"], object["metadata"] = "example.com/v1", "Thing",
			map[string]any{"name": "a"}
		problems, unknown := catalog.Check(object), 0
		for _, problem := range problems {
			if problem.Message == unknownField {
				unknown++
			}
		}
		for _, kind := range catalog.custom {
			pruned := pruning.PruneWithOptions(runtime.DeepCopyJSON(object), kind.structural, true,
				structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
			require.LessOrEqual(t, unknown, len(pruned), "%v", pruned)
			if len(problems) == 0 {
				require.Empty(t, pruned)
			}
		}
	})
}
