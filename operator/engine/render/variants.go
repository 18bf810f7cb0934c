package render

import (
	"cmp"
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Variant is a template with one combination of its overlays.
type Variant struct {
	*Compiled
	Overlays []string
}

// Variants compiles a template with every combination of its overlays, in ascending order of their number: several
// overlays together may do what none of them does alone. It omits combinations that are invalid, with which no
// namespace is populated.
func Variants(ctx context.Context, template *v1alpha1.NamespaceTemplate) ([]Variant, error) {
	if err := CheckCombinations(template); err != nil {
		return nil, err
	}
	objects, err := parseTemplate(template)
	if err != nil {
		return nil, withTemplateName(template, err)
	}
	type layered struct {
		objects  []*unstructured.Unstructured
		overlays []string
	}
	combinations := []layered{{objects: objects}}
	for i, overlay := range template.Spec.Overlays {
		for _, below := range combinations { // the combinations without the overlay
			if objects, err := applyOverlay(ctx.Err, Part{Overlays, i}, overlay, below.objects); err == nil {
				combinations = append(combinations,
					layered{objects, append(slices.Clone(below.overlays), overlay.Name)})
			}
		}
	}
	variants := make([]Variant, 0, len(combinations))
	for _, combination := range combinations {
		compiled, err := finish(ctx.Err, template, combination.objects)
		if err == nil {
			variants = append(variants, Variant{Compiled: compiled, Overlays: combination.overlays})
		} else if len(combination.overlays) == 0 {
			return nil, withTemplateName(template, err)
		}
	}
	slices.SortStableFunc(variants, func(a, b Variant) int { return cmp.Compare(len(a.Overlays), len(b.Overlays)) })
	return variants, ctx.Err()
}

// Objects returns the compiled objects, in which tokens are not replaced. The caller must not change them.
func (c *Compiled) Objects() []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, len(c.objects))
	for i := range c.objects {
		objects[i] = &c.objects[i].Unstructured
	}
	return objects
}
