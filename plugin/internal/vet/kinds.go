package vet

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/manifest"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/source"
)

// checkKind checks an object by the rules of its kind that its schema does not have.
func (c *checker) checkKind(ctx context.Context, object source.Object) {
	if object.APIVersion != v1alpha1.GroupVersion.String() {
		return
	}
	switch object.Kind {
	case "NamespaceTemplate":
		c.checkTemplate(ctx, object)
	case "NamespaceInitializationConfiguration":
		var fields struct {
			Initializers []struct {
				NamespaceSelector json.RawMessage `json:"namespaceSelector"`
			} `json:"initializers"`
		}
		_ = json.Unmarshal(object.Data, &fields) // the schema reports fields of other types
		for i, initializer := range fields.Initializers {
			c.checkSelector(object, fmt.Sprintf("initializers[%d].namespaceSelector", i), initializer.NamespaceSelector)
		}
	case "PolicySpace":
		c.checkSpace(object)
	case "ProtectedAttribute", "ClusterProtectedAttribute":
		rule := attributeRule{source: object}
		if _, whole := manifest.Decode(object.Data, &rule.ProtectedAttribute); whole {
			c.related.attributes = append(c.related.attributes, rule)
		}
	}
}

// checkTemplate reports what prevents a template from populating namespaces, and the objects in it whose kinds have no
// known schema.
func (c *checker) checkTemplate(ctx context.Context, object source.Object) {
	template, waves := decodeTemplate(object)
	for _, problem := range render.Vet(ctx, template, c.schemas) {
		path, message := problem.Path, problem.Message
		if path == "" {
			path, message = splitField(message)
		}
		if problem.Object != "" {
			message = problem.Object + ": " + message
		}
		if !c.isReported(object, path) {
			c.violate(object, problem.Rule, path, message, problem.Remedy)
		}
	}
	for i, selector := range waves {
		c.checkSelector(object, fmt.Sprintf("spec.rollout.waves[%d].selector", i), selector)
	}
	if c.cluster != nil { // the API server prints its own warnings, and knows all kinds
		return
	}
	for _, warning := range render.Warnings(template) {
		path, message := splitField(warning)
		c.warn(object, path, message)
	}
	for i, raw := range template.Spec.Templates {
		var head metav1.PartialObjectMetadata
		_ = json.Unmarshal(raw.Raw, &head) // package render reports objects that cannot be decoded
		if kind := head.GroupVersionKind(); kind.Kind != "" && kind.Version != "" && !c.schemas.Knows(kind) {
			c.skip(object, fmt.Sprintf("spec.templates[%d]", i),
				output.Object(kind.GroupKind(), head.Name)+": "+noSchema(kind))
		}
	}
}

// decodeTemplate returns a template without the fields that its schema alone decides about, and the selectors of its
// waves. Fields of other types are left out: the schema reports them.
func decodeTemplate(object source.Object) (template *v1alpha1.NamespaceTemplate, waves []json.RawMessage) {
	var fields struct {
		Spec map[string]json.RawMessage `json:"spec"`
	}
	template = &v1alpha1.NamespaceTemplate{}
	_ = json.Unmarshal(object.Data, &fields)
	for name, into := range map[string]any{
		"namespaces": &template.Spec.Namespaces, "templates": &template.Spec.Templates,
		"overlays": &template.Spec.Overlays, "authoritative": &template.Spec.Authoritative,
	} {
		if raw := fields.Spec[name]; raw != nil {
			manifest.Decode(raw, into)
		}
	}
	template.Name = object.Name
	var rollout struct {
		Waves []struct {
			Selector json.RawMessage `json:"selector"`
		} `json:"waves"`
	}
	if raw := fields.Spec["rollout"]; raw != nil {
		_ = json.Unmarshal(raw, &rollout)
	}
	for _, wave := range rollout.Waves {
		waves = append(waves, wave.Selector)
	}
	return template, waves
}

// isReported reports whether a violation about a field of an object, or about a field that contains it, was found
// before.
func (c *checker) isReported(object source.Object, field string) bool {
	return slices.ContainsFunc(c.Violations, func(v finding) bool {
		return v.Field != "" && v.Path == object.File && v.begins == object.Lines.Of() &&
			(v.Field == field || strings.HasPrefix(field, v.Field+"."))
	})
}

// fieldPath matches a message that begins with the path of a field.
var fieldPath = regexp.MustCompile(`^(?s)(spec\.[A-Za-z]+(?:\[\d+\])?(?:\.[^\s:]+)?): (.*)$`)

// splitField splits a message that begins with the path of a field. The path is "" if it does not.
func splitField(text string) (field, message string) {
	if match := fieldPath.FindStringSubmatch(text); match != nil {
		return match[1], match[2]
	}
	return "", text
}

// checkSpace reports limits of a policy space that no ResourceQuota can have.
func (c *checker) checkSpace(object source.Object) {
	var fields struct {
		Spec struct {
			Parent string `json:"parent"`
			Quota  struct {
				Hard map[corev1.ResourceName]json.RawMessage `json:"hard"`
			} `json:"quota"`
		} `json:"spec"`
	}
	_ = json.Unmarshal(object.Data, &fields)
	hard := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(fields.Spec.Quota.Hard)) {
		limit := hard[name]
		if json.Unmarshal(fields.Spec.Quota.Hard[name], &limit) != nil {
			continue // the schema reports it
		}
		hard[name] = limit
		at := fmt.Sprintf("spec.quota.hard[%s]", name)
		if wrong := hierarchy.CheckLimit(name, hard); wrong != "" && !c.isReported(object, at) {
			c.violate(object, ruleQuota, at, wrong, "correct or remove the limit")
		}
	}
	if object.Name != "" {
		c.related.spaces = append(c.related.spaces, policySpace{
			source: object, PolicySpace: v1alpha1.PolicySpace{
				ObjectMeta: metav1.ObjectMeta{Name: object.Name},
				Spec: v1alpha1.PolicySpaceSpec{
					Parent: fields.Spec.Parent, Quota: &v1alpha1.PolicySpaceQuota{Hard: hard},
				},
			},
		})
	}
}

// declared returns the names of the objects in a template, such as resourcequota/budget, by their index.
func declared(template *v1alpha1.NamespaceTemplate) []string {
	names := make([]string, len(template.Spec.Templates))
	for i, raw := range template.Spec.Templates {
		var head metav1.PartialObjectMetadata
		if json.Unmarshal(raw.Raw, &head) == nil && head.Kind != "" && head.Name != "" {
			names[i] = output.Object(schema.GroupKind{Group: head.GroupVersionKind().Group, Kind: head.Kind}, head.Name)
		}
	}
	return names
}
