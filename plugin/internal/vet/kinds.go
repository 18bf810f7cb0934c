package vet

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/manifest"
	"nstpl.dev/nstpl/operator/engine/quantities"
	"nstpl.dev/nstpl/operator/engine/schema"
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

// isReported reports whether a violation about a field of an object, or about a field that contains it, was found
// before.
func (c *checker) isReported(object source.Object, field string) bool {
	return slices.ContainsFunc(c.Violations, func(v finding) bool {
		return v.Field != "" && v.Path == object.File && v.begins == object.Lines.Of() &&
			(v.Field == field || strings.HasPrefix(field, v.Field+"."))
	})
}

// checkSpace reports limits of a policy space that no ResourceQuota can have.
func (c *checker) checkSpace(object source.Object) {
	var fields struct {
		Spec struct {
			Parent string `json:"parent"`
			Quota  struct {
				Hard       map[corev1.ResourceName]json.RawMessage `json:"hard"`
				PerCreator json.RawMessage                         `json:"namespacesPerCreator"`
			} `json:"quota"`
		} `json:"spec"`
	}
	_ = json.Unmarshal(object.Data, &fields)
	hard := corev1.ResourceList{}
	for _, name := range slices.Sorted(maps.Keys(fields.Spec.Quota.Hard)) {
		limit, err := quantities.Decode(fields.Spec.Quota.Hard[name])
		if err != nil {
			continue // the schema reports it
		}
		hard[name] = limit
		at := fmt.Sprintf("spec.quota.hard[%s]", name)
		if message, remedy := schema.CheckLimit(string(name), limit); message != "" && !c.isReported(object, at) {
			c.violate(object, ruleQuota, at, message, cmp.Or(remedy, "correct or remove the limit"))
		}
	}
	var perCreator *v1alpha1.NamespacesPerCreator
	_ = json.Unmarshal(fields.Spec.Quota.PerCreator, &perCreator) // the schema reports what it cannot read
	if object.Name != "" {
		c.related.spaces = append(c.related.spaces, policySpace{
			source: object, PolicySpace: v1alpha1.PolicySpace{
				ObjectMeta: metav1.ObjectMeta{Name: object.Name},
				Spec: v1alpha1.PolicySpaceSpec{
					Parent: fields.Spec.Parent,
					Quota:  &v1alpha1.PolicySpaceQuota{Hard: hard, NamespacesPerCreator: perCreator},
				},
			},
		})
	}
}
