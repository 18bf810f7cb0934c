package vetting

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// overriddenLosses returns the protected objects of the templates that the updated one overrides, with the objects that
// replace them. isProtected reports whether the author may not remove an object's attributes.
func (v *review) overriddenLosses(
	ctx context.Context, variants []render.Variant, isProtected func(*unstructured.Unstructured) bool,
) ([]loss, error) {
	if v.updated == nil {
		return nil, nil
	}
	own := namesOf(declarationsOf(v.updated))
	var all []loss
	for _, overlap := range overlaps(v.updated, v.others) {
		if !overlap.overrides {
			continue
		}
		inForce, err := v.Outlines.inForce(ctx, overlap.other)
		if apierrors.IsNotFound(err) {
			continue // it was deleted meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, before := range variantsInForce(ctx, inForce) {
			for _, object := range before.Objects() {
				if own[object.GroupVersionKind().GroupKind()].mayHave(object.GetName()) && isProtected(object) {
					all = append(all, replacements(object, variants)...)
				}
			}
		}
	}
	return all, nil
}

// variantsInForce returns the variants of all revisions of a template that are in force.
func variantsInForce(ctx context.Context, inForce []*v1alpha1.NamespaceTemplate) []render.Variant {
	var variants []render.Variant
	for _, revision := range inForce {
		variants = append(variants, variantsOf(ctx, revision)...)
	}
	return variants
}

// replacements returns a protected object with each of the objects that may replace it. A copy of a source has the
// attributes of the source, so it counts as an object without any.
func replacements(protected *unstructured.Unstructured, variants []render.Variant) []loss {
	var all []loss
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			if object.GroupVersionKind().GroupKind() == protected.GroupVersionKind().GroupKind() &&
				render.MayCoincide(object.GetName(), protected.GetName()) {
				all = append(all, loss{protected, object})
			}
		}
	}
	if len(all) == 0 {
		all = append(all, loss{protected, &unstructured.Unstructured{Object: map[string]any{}}})
	}
	return all
}
