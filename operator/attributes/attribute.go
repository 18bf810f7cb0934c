// Package attributes decides who may set, change and remove protected labels and annotations ("Protected attributes").
// It takes objects, rules and roles, and returns what stands in the way.
package attributes

import (
	"encoding/json"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Attribute is a label or an annotation, whatever its value.
type Attribute struct {
	Kind v1alpha1.AttributeKind
	Name string
}

func (a Attribute) String() string {
	return strings.ToLower(string(a.Kind)) + " " + a.Name
}

// fields are where in metadata the attributes of a kind are.
var fields = map[v1alpha1.AttributeKind]string{
	v1alpha1.LabelAttribute:      "labels",
	v1alpha1.AnnotationAttribute: "annotations",
}

// each stands in a path for every element of a list.
const each = "*"

// places are where in an object the metadata is that counts as its own: its own, and that of the templates which
// Kubernetes makes objects of. Its controllers are not asked what they copy, so whoever writes the template is.
var places = [][]string{
	{},
	{"template"},         // PodTemplate
	{"spec"},             // ResourceClaimTemplate
	{"spec", "template"}, // Deployment and its like
	{"spec", "jobTemplate"},
	{"spec", "jobTemplate", "spec", "template"},
	{"data", "spec", "template"}, // ControllerRevision
	{"spec", "volumeClaimTemplates", each},
	{"data", "spec", "volumeClaimTemplates", each},
	{"spec", "volumes", each, "ephemeral", "volumeClaimTemplate"},
	{"spec", "template", "spec", "volumes", each, "ephemeral", "volumeClaimTemplate"},
	{"data", "spec", "template", "spec", "volumes", each, "ephemeral", "volumeClaimTemplate"},
	{"spec", "jobTemplate", "spec", "template", "spec", "volumes", each, "ephemeral", "volumeClaimTemplate"},
}

// values are those that the attributes have in one place of an object, in a list more than one.
type values map[Attribute][]string

// valuesAt returns the attributes in a place. What is no label or annotation by its shape is none.
func valuesAt(object map[string]any, place []string) values {
	found := values{}
	for _, holder := range at(object, place) {
		metadata, _ := holder["metadata"].(map[string]any)
		for kind, field := range fields {
			attributes, _ := metadata[field].(map[string]any)
			for name, value := range attributes {
				attribute := Attribute{kind, name}
				found[attribute] = append(found[attribute], text(value))
			}
		}
	}
	return found
}

// at returns the maps at the end of a path.
func at(object map[string]any, path []string) []map[string]any {
	for i, step := range path {
		if step == each {
			continue // the step before has taken the list apart
		}
		if i+1 == len(path) || path[i+1] != each {
			if object, _ = object[step].(map[string]any); object == nil {
				return nil
			}
			continue
		}
		var found []map[string]any
		list, _ := object[step].([]any)
		for _, item := range list {
			if element, ok := item.(map[string]any); ok {
				found = append(found, at(element, path[i+2:])...)
			}
		}
		return found
	}
	return []map[string]any{object}
}

// text is a value as such. In a template of a custom resource it need not be a string.
func text(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	data, _ := json.Marshal(value) // it came as JSON
	return string(data)
}
