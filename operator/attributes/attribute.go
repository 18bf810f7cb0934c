// Package attributes decides who may set, change and remove protected labels and annotations.
//
// A rule (ClusterProtectedAttribute, or ProtectedAttribute for one namespace) names an attribute, optionally some of
// its values, and a role. Rules.Judge takes a change of an object and a function that reports which roles the requester
// holds, and returns the violations: the changed attributes that the requester may not change. Rules.Conditions returns
// CEL expressions with which the API server selects the requests that need this decision. These rules hold:
//
//   - An attribute without a rule is not protected. An attribute whose values do not change is never a violation.
//   - The requester must hold the role of a single rule that covers all old and new values of the attribute.
//   - The attributes in templates inside of an object, such as the pod template of a Deployment, are protected like
//     its own: controllers copy them to objects, and their requests are not checked.
//   - The deletion of an object is protected only by rules with guardDeletion.
package attributes

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Attribute is a label or an annotation, with any value.
type Attribute struct {
	Kind v1alpha1.AttributeKind
	Name string
}

func (a Attribute) String() string {
	return strings.ToLower(string(a.Kind)) + " " + a.Name
}

// compare orders attributes by kind and name.
func (a Attribute) compare(b Attribute) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// fields are the fields of metadata that have the attributes of a kind.
var fields = map[v1alpha1.AttributeKind]string{
	v1alpha1.LabelAttribute:      "labels",
	v1alpha1.AnnotationAttribute: "annotations",
}

// each is a step of a path that selects every element of a list.
const each = "*"

// revisionData is the first step of the paths in a ControllerRevision. The controllers of StatefulSets and DaemonSets
// decode it with encoding/json, which ignores the case of fields' names.
const revisionData = "data"

// metadataPaths are the paths of protected metadata in an object: its own, and that of the templates from which
// controllers create objects. Controllers may set every attribute, so the user who writes the template must be allowed
// to.
var metadataPaths = [][]string{
	{},
	{"template"},         // PodTemplate
	{"spec"},             // ResourceClaimTemplate
	{"spec", "template"}, // Deployment and its like
	{"spec", "jobTemplate"},
	{"spec", "jobTemplate", "spec", "template"},
	{revisionData, "spec", "template"}, // ControllerRevision
	{"spec", "volumeClaimTemplates", each},
	{revisionData, "spec", "volumeClaimTemplates", each},
	{"spec", "volumes", each, "ephemeral", "volumeClaimTemplate"},
	{"spec", "template", "spec", "volumes", each, "ephemeral", "volumeClaimTemplate"},
	{revisionData, "spec", "template", "spec", "volumes", each, "ephemeral", "volumeClaimTemplate"},
	{"spec", "jobTemplate", "spec", "template", "spec", "volumes", each, "ephemeral", "volumeClaimTemplate"},
}

// values are the values of the attributes at one path of an object. In a list, an attribute has several.
type values map[Attribute][]string

// valuesAt returns the attributes at a path. It ignores values that do not have the structure of labels or annotations.
func valuesAt(object map[string]any, place []string) values {
	found, anyCase := values{}, len(place) > 0 && place[0] == revisionData
	for _, metadata := range at(object, slices.Concat(place, []string{"metadata"}), anyCase) {
		for kind, field := range fields {
			for _, attributes := range at(metadata, []string{field}, anyCase) {
				for name, value := range attributes {
					attribute := Attribute{kind, name}
					found[attribute] = append(found[attribute], text(value))
				}
			}
		}
	}
	return found
}

// Has reports whether an object, or a template inside of it, has labels or annotations.
func Has(object map[string]any) bool {
	return slices.ContainsFunc(metadataPaths, func(path []string) bool { return len(valuesAt(object, path)) > 0 })
}

// at returns the maps at a path. With anyCase, the case of the fields' names does not matter.
func at(object map[string]any, path []string, anyCase bool) []map[string]any {
	if len(path) == 0 {
		return []map[string]any{object}
	}
	if !anyCase {
		return below(object[path[0]], path[1:], anyCase)
	}
	var found []map[string]any
	for field, value := range object {
		if strings.EqualFold(field, path[0]) {
			found = append(found, below(value, path[1:], anyCase)...)
		}
	}
	return found
}

// below returns the maps at a path that begins at a map or, if the path begins with each, at the elements of a list.
func below(value any, path []string, anyCase bool) []map[string]any {
	if len(path) == 0 || path[0] != each {
		object, ok := value.(map[string]any)
		if !ok {
			return nil
		}
		return at(object, path, anyCase)
	}
	var found []map[string]any
	list, _ := value.([]any)
	for _, item := range list {
		found = append(found, below(item, path[1:], anyCase)...)
	}
	return found
}

// text returns a value as a string. In the template of a custom resource, it may be of any type.
func text(value any) string {
	if s, ok := value.(string); ok {
		return s
	}
	data, _ := json.Marshal(value) // cannot fail: the value was decoded from JSON
	return string(data)
}
