package openapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// Probe removes the required fields without which API servers accept objects: OpenAPI documents derive what is required
// from Go's types, and validation in Go decides. Probe sends dry runs of objects without these fields, and keeps those
// fields that an API server then reports. It tries each type at several places of several kinds.
func Probe(ctx context.Context, config *rest.Config, schemas map[string]any) error {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	client, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return err
	}
	p := &probe{ctx: ctx, client: client.RESTClient(), schemas: schemas, confirmed: map[string]map[string]bool{
		// Without it, API servers report the labels of the template.
		"io.k8s.api.apps.v1.DaemonSetSpec": {"selector": true},
	}}
	resources := map[string]string{} // their paths by apiVersion and kind
	_, all, err := client.ServerGroupsAndResources()
	if err != nil {
		return err
	}
	for _, list := range all {
		for _, resource := range list.APIResources {
			if strings.Contains(resource.Name, "/") || !slices.Contains(resource.Verbs, "create") {
				continue
			}
			path := "/apis/" + list.GroupVersion
			if list.GroupVersion == "v1" {
				path = "/api/v1"
			}
			if resource.Namespaced {
				path += "/namespaces/default"
			}
			resources[list.GroupVersion+" "+resource.Kind] = path + "/" + resource.Name
		}
	}
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		kinds, _ := schemas[name].(map[string]any)["x-kubernetes-group-version-kind"].([]any)
		for _, each := range kinds {
			kind := each.(map[string]any)
			version := metav1.GroupVersion{Group: kind["group"].(string), Version: kind["version"].(string)}.String()
			p.path, p.apiVersion, p.kind = resources[version+" "+kind["kind"].(string)], version, kind["kind"].(string)
			if p.path == "" {
				continue
			}
			p.tried = map[string]int{}
			if err := p.visit(name, nil); err != nil {
				return err
			}
		}
	}
	for name, schema := range schemas {
		p.prune(name, schema.(map[string]any))
	}
	return nil
}

type probe struct {
	ctx     context.Context
	client  rest.Interface
	schemas map[string]any
	// confirmed are the required fields of types that an API server has reported.
	confirmed map[string]map[string]bool

	// The kind of the objects that are sent, and how many objects had a value of a type.
	path, apiVersion, kind string
	tried                  map[string]int
}

// step is a field, and whether it is a list or a map of objects.
type step struct{ name, within string }

const maxDepth, maxTries = 12, 3

// visit sends an object with an empty value of a type at a place, and visits the fields of the type.
func (p *probe) visit(name string, at []step) error {
	schema, ok := p.schemas[name].(map[string]any)
	if !ok || len(at) > maxDepth || p.tried[name] >= maxTries {
		return nil
	}
	p.tried[name]++
	required, _ := schema["required"].([]any)
	if len(required) > len(p.confirmed[name]) {
		if err := p.send(name, required, at); err != nil {
			return err
		}
	}
	properties, _ := schema["properties"].(map[string]any)
	for _, field := range slices.Sorted(maps.Keys(properties)) {
		if len(at) == 0 && (field == "status" || field == "metadata") {
			continue
		}
		property := properties[field].(map[string]any)
		next := step{name: field}
		if items, ok := property["items"].(map[string]any); ok {
			property, next.within = items, "list"
		} else if values, ok := property["additionalProperties"].(map[string]any); ok {
			property, next.within = values, "map"
		}
		if ref, ok := property["$ref"].(string); ok {
			if err := p.visit(ref, append(slices.Clone(at), next)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *probe) send(name string, required []any, at []step) error {
	object := map[string]any{
		"apiVersion": p.apiVersion, "kind": p.kind, "metadata": map[string]any{"name": "a"},
	}
	inner, path := object, ""
	for _, step := range at {
		next := map[string]any{}
		path = strings.TrimPrefix(path+"."+step.name, ".")
		switch step.within {
		case "list":
			inner[step.name] = []any{next}
			path += "[0]"
		case "map":
			inner[step.name] = map[string]any{"a": next}
			path += "[a]"
		default:
			inner[step.name] = next
		}
		inner = next
	}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	err = p.client.Post().RequestURI(p.path+"?dryRun=All").SetHeader("Content-Type", "application/json").Body(body).
		Do(p.ctx).Error()
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if err != nil {
			return fmt.Errorf("%s: %w", p.path, err)
		}
		return nil
	}
	if status.Status().Details == nil || !apierrors.IsInvalid(err) {
		return nil
	}
	for _, each := range required {
		field := strings.TrimPrefix(path+"."+each.(string), ".")
		for _, cause := range status.Status().Details.Causes {
			rest, found := strings.CutPrefix(cause.Field, field)
			if found && (rest == "" || rest[0] == '.' || rest[0] == '[') {
				p.confirm(name, each.(string))
			}
		}
	}
	return nil
}

func (p *probe) confirm(name, field string) {
	if p.confirmed[name] == nil {
		p.confirmed[name] = map[string]bool{}
	}
	p.confirmed[name][field] = true
}

// prune removes the required fields of a type that no API server has reported.
func (p *probe) prune(name string, schema map[string]any) {
	required, _ := schema["required"].([]any)
	required = slices.DeleteFunc(required, func(field any) bool { return !p.confirmed[name][field.(string)] })
	if len(required) > 0 {
		schema["required"] = required
	} else {
		delete(schema, "required")
	}
}
