package schema

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// draft is the version of JSON Schema that all editors know.
const draft = "http://json-schema.org/draft-07/schema#"

// ofKind returns the JSON schema of the objects that a CustomResourceDefinition defines. Fields that the API server
// would reject or remove are invalid. CEL rules are left out, because JSON Schema cannot express them.
func ofKind(definition *apiextensionsv1.CustomResourceDefinition) (map[string]any, error) {
	for _, version := range definition.Spec.Versions {
		if !version.Storage {
			continue
		}
		content, err := json.Marshal(version.Schema.OpenAPIV3Schema)
		if err != nil {
			return nil, err
		}
		schema := map[string]any{}
		if err := utiljson.Unmarshal(content, &schema); err != nil {
			return nil, err
		}
		convert(schema)
		properties, _ := schema["properties"].(map[string]any)
		properties["apiVersion"] = fixed(definition.Spec.Group + "/" + version.Name)
		properties["kind"] = fixed(definition.Spec.Names.Kind)
		properties["metadata"] = metadata()
		required, _ := schema["required"].([]any)
		schema["required"] = append([]any{"apiVersion", "kind", "metadata"}, required...)
		return schema, nil
	}
	return nil, fmt.Errorf("CustomResourceDefinition %s has no stored version", definition.Name)
}

// ofAll returns the JSON schema for files with objects of any kind. It checks those of nstpl.
func ofAll(definitions []*apiextensionsv1.CustomResourceDefinition) (map[string]any, error) {
	schemas, kinds := map[string]any{}, []any{}
	version := v1alpha1.GroupVersion.String()
	var choices []any
	for _, definition := range definitions {
		schema, err := ofKind(definition)
		if err != nil {
			return nil, err
		}
		kind := definition.Spec.Names.Kind
		schemas[kind] = schema
		kinds = append(kinds, kind)
		choices = append(choices, map[string]any{
			"if": map[string]any{
				"properties": map[string]any{
					"apiVersion": map[string]any{"const": version}, "kind": map[string]any{"const": kind},
				},
				"required": []any{"apiVersion", "kind"},
			},
			"then": map[string]any{"$ref": "#/definitions/" + kind},
		})
	}
	choices = append(choices, map[string]any{
		"if": map[string]any{
			"properties": map[string]any{
				"apiVersion": map[string]any{"pattern": "^" + strings.ReplaceAll(v1alpha1.GroupVersion.Group, ".", "[.]") + "/"},
			},
			"required": []any{"apiVersion"},
		},
		"then": map[string]any{
			"properties": map[string]any{"apiVersion": fixed(version), "kind": map[string]any{"enum": kinds}},
			"required":   []any{"kind"},
		},
	})
	return map[string]any{
		"$schema":     draft,
		"title":       "Objects of nstpl",
		"description": "Checks the objects of nstpl in a file. Objects of other API groups are not checked.",
		"allOf":       choices, "definitions": schemas,
	}, nil
}

// convert changes a schema of a CustomResourceDefinition, and those in it, to one of JSON Schema.
func convert(schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	for _, property := range properties {
		convert(property.(map[string]any))
	}
	for _, keyword := range []string{"items", "additionalProperties"} {
		if inner, ok := schema[keyword].(map[string]any); ok {
			convert(inner)
		}
	}
	_, isMap := schema["additionalProperties"]
	if properties != nil && !isMap && schema["x-kubernetes-preserve-unknown-fields"] != true {
		schema["additionalProperties"] = false // the API server would remove them
	}
	if schema["nullable"] == true {
		schema["type"] = []any{schema["type"], "null"}
		if values, ok := schema["enum"].([]any); ok {
			schema["enum"] = append(values, nil)
		}
	}
	delete(schema, "nullable")
	maps.DeleteFunc(schema, func(keyword string, _ any) bool { return strings.HasPrefix(keyword, "x-kubernetes-") })
	if format, _ := schema["format"].(string); slices.Contains([]string{"int32", "int64"}, format) {
		delete(schema, "format") // not a format of JSON Schema
	}
}

func fixed(value string) map[string]any {
	return map[string]any{"type": "string", "enum": []any{value}}
}

// metadata returns the schema of an object's metadata. Definitions leave it to the API server.
func metadata() map[string]any {
	texts := map[string]any{"type": "object", "additionalProperties": map[string]any{"type": "string"}}
	properties := map[string]any{
		"name": map[string]any{"type": "string"}, "generateName": map[string]any{"type": "string"},
		"namespace": map[string]any{"type": "string"}, "labels": texts, "annotations": texts,
		"finalizers":      map[string]any{"type": "array", "items": map[string]any{"type": "string"}},
		"ownerReferences": map[string]any{"type": "array", "items": map[string]any{"type": "object"}},
	}
	for _, written := range []string{ // by the API server, in objects that kubectl get prints
		"creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
		"resourceVersion", "selfLink", "uid",
	} {
		properties[written] = map[string]any{"description": "The API server writes this field."}
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}
