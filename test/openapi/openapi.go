// Package openapi reads the schemas of Kubernetes' kinds from an API server, in the form in which package schema of the
// engine embeds them: without descriptions, defaults and what only clients need.
package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Read returns the schemas of an API server's kinds by their names, and those of the types of their fields.
func Read(ctx context.Context, config *rest.Config) (map[string]any, error) {
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	get := func(path string, into any) error {
		data, err := client.RESTClient().Get().RequestURI(path).SetHeader("Accept", "application/json").DoRaw(ctx)
		if err != nil {
			return fmt.Errorf("get %s: %w", path, err)
		}
		return json.Unmarshal(data, into)
	}
	var index struct {
		Paths map[string]struct {
			URL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if err := get("/openapi/v3", &index); err != nil {
		return nil, err
	}
	schemas := map[string]any{}
	for _, path := range slices.Sorted(maps.Keys(index.Paths)) {
		var document struct {
			Components struct {
				Schemas map[string]map[string]any `json:"schemas"`
			} `json:"components"`
		}
		if err := get(index.Paths[path].URL, &document); err != nil {
			return nil, err
		}
		for name, schema := range document.Components.Schemas {
			// WatchEvent and DeleteOptions have other kinds in each document, and are not objects.
			if !strings.HasSuffix(name, ".WatchEvent") && !strings.HasSuffix(name, ".DeleteOptions") {
				schemas[name] = essential(schema)
			}
		}
	}
	return schemas, nil
}

// essential returns what validation needs of a schema.
func essential(schema map[string]any) map[string]any {
	kept := map[string]any{}
	for key, value := range schema {
		switch key {
		case "type", "format", "enum", "required", "x-kubernetes-group-version-kind":
			kept[key] = value
		case "$ref":
			kept[key] = strings.TrimPrefix(value.(string), "#/components/schemas/")
		case "allOf": // a reference beside a description
			if parts := value.([]any); len(parts) == 1 {
				maps.Copy(kept, essential(parts[0].(map[string]any)))
			}
		case "items", "additionalProperties":
			if nested, ok := value.(map[string]any); ok {
				kept[key] = essential(nested)
			} else {
				kept[key] = value
			}
		case "properties":
			properties := map[string]any{}
			for name, property := range value.(map[string]any) {
				properties[name] = essential(property.(map[string]any))
			}
			kept[key] = properties
		}
	}
	return kept
}
