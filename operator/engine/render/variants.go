package render

import (
	"cmp"
	"fmt"
	"math/bits"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// MaxVariantOverlays is how many overlays Variants combines.
const MaxVariantOverlays = 6

// Variant is a template with one combination of its overlays.
type Variant struct {
	*Compiled
	Overlays []string
}

// Variants compiles a template with every combination of its overlays, small ones first: what no overlay does by itself
// may come of several together. Combinations that don't build are left out, since nothing is populated where they meet.
func Variants(template *v1alpha1.NamespaceTemplate) ([]Variant, error) {
	overlays := template.Spec.Overlays
	if len(overlays) > MaxVariantOverlays {
		return nil, fmt.Errorf("there are more than %d overlays", MaxVariantOverlays)
	}
	var variants []Variant
	for set := range uint(1) << len(overlays) {
		variant := Variant{}
		for i, overlay := range overlays {
			if set&(1<<i) != 0 {
				variant.Overlays = append(variant.Overlays, overlay.Name)
			}
		}
		var err error
		if variant.Compiled, err = Compile(template, variant.Overlays); err == nil {
			variants = append(variants, variant)
		} else if bits.OnesCount(set) == 0 {
			return nil, err
		}
	}
	slices.SortStableFunc(variants, func(a, b Variant) int { return cmp.Compare(len(a.Overlays), len(b.Overlays)) })
	return variants, nil
}

// Objects returns the objects as they are before they are stamped, tokens and all. They are not to be changed.
func (c *Compiled) Objects() []*unstructured.Unstructured {
	objects := make([]*unstructured.Unstructured, len(c.objects))
	for i := range c.objects {
		objects[i] = &c.objects[i].Unstructured
	}
	return objects
}
