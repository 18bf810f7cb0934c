package vetting

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/render"
)

// keysSetBy returns the labels and annotations of namespaces that a template sets, by itself or in an overlay, in
// ascending order.
func keysSetBy(template *v1alpha1.NamespaceTemplate) []render.MetadataKey {
	return slices.SortedFunc(maps.Keys(render.DeclaredMetadata(&template.Spec)), render.MetadataKey.Compare)
}

// judgeValues returns a problem for each label and annotation from which the template renders and that no rule
// protects, or that a template sets. Otherwise users who may label a namespace could choose what the operator creates
// in it, and templates could change what they set for one another without end.
func (v *review) judgeValues(ctx context.Context) ([]error, error) {
	var problems []error
	for _, other := range v.others {
		for _, key := range keysSetBy(v.updated) {
			if slices.Contains(other.usedKeys, key) {
				problems = append(problems, fmt.Errorf("it sets the %s of namespaces, from which template %s renders (%s): "+
					"a template cannot depend on what templates set: remove it from namespaceMetadata", key, other.name,
					key.Token()))
			}
		}
		for _, key := range render.UsedKeys(&v.updated.Spec) {
			if slices.Contains(other.setKeys, key) {
				problems = append(problems, render.NewDependencyError(key, other.name))
			}
		}
	}
	problems = distinct(problems)
	var unprotected []render.MetadataKey
	for _, key := range render.UsedKeys(&v.updated.Spec) {
		protected, err := v.protects(ctx, key)
		if err != nil {
			return nil, err
		}
		if !protected {
			unprotected = append(unprotected, key)
		}
	}
	if len(unprotected) > 0 {
		problems = append(problems, render.NewUnprotectedError(unprotected))
	}
	return problems, nil
}

// protects reports whether a rule of the cluster protects a label or an annotation of namespaces. It asks the API
// server if the cache has no such rule, which may have been created just now. Whether the rule remains is for the
// operator to observe.
func (v *review) protects(ctx context.Context, key render.MetadataKey) (bool, error) {
	if protected, err := v.Attributes.Protects(ctx, key.Attribute()); err != nil || protected {
		return protected, err
	}
	stored := &v1alpha1.ClusterProtectedAttributeList{}
	if err := v.Live.List(ctx, stored); err != nil {
		return false, fmt.Errorf("list ClusterProtectedAttributes: %w", err)
	}
	return slices.ContainsFunc(stored.Items, func(rule v1alpha1.ClusterProtectedAttribute) bool {
		return attributes.Rule{AttributeRule: rule.AttributeRule}.Attribute() == key.Attribute()
	}), nil
}
