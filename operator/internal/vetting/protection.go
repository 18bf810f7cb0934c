package vetting

import (
	"context"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// judgeProtection returns the kinds of objects from which the author may not remove the protection from deletion
// although the template may make the operator do so.
func (v *review) judgeProtection(ctx context.Context, variants []render.Variant, complete bool) ([]error, error) {
	var before []render.Variant
	if v.old != nil && slices.ContainsFunc(render.AllDeclarations(v.old), mayBeProtected) {
		before = variantsOf(ctx, v.old)
	}
	kinds, err := v.resolveDeleted(slices.Concat(v.unprotectedKinds(before, variants, complete),
		v.overriddenProtection(variants, complete)))
	if err != nil {
		return nil, err
	}
	var rights []right
	for _, kind := range kinds {
		rights = append(rights, kind.right(v1alpha1.VerbUnprotect))
	}
	return v.missing(ctx, rights, nil)
}

func mayBeProtected(d render.Declaration) bool { return d.MayBeProtected }

// unprotectedKinds returns the kinds of objects that a variant protects from deletion, of the old template or of the
// updated one, and that another variant of the updated template declares without protection.
func (e edit) unprotectedKinds(before, variants []render.Variant, complete bool) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, declaration := range render.AllDeclarations(e.updated) {
		wasProtected := slices.ContainsFunc(slices.Concat(before, variants), func(variant render.Variant) bool {
			object := objectIn(variant, declaration)
			return object != nil && isProtected(object)
		})
		if wasProtected && e.mayLackProtection(declaration, variants, complete) {
			kinds = append(kinds, declaration.GroupVersionKind)
		}
	}
	return kinds
}

// mayLackProtection reports whether a variant of the updated template declares an object without protection.
func (e edit) mayLackProtection(declaration render.Declaration, variants []render.Variant, complete bool) bool {
	return !complete && patches(e.updated) || slices.ContainsFunc(variants, func(variant render.Variant) bool {
		object := objectIn(variant, declaration)
		return object != nil && !isProtected(object)
	})
}

// overriddenProtection returns the kinds of objects that another template protects from deletion, and that the updated
// template overrides without protection.
func (v *review) overriddenProtection(variants []render.Variant, complete bool) []schema.GroupVersionKind {
	selects := requirementsOf(v.updated.Spec.Namespaces)
	var kinds []schema.GroupVersionKind
	for _, own := range render.AllDeclarations(v.updated) {
		protects := func(other render.Declaration) bool {
			return other.MayBeProtected && other.GroupKind() == own.GroupKind() &&
				render.MayCoincide(other.Name, own.Name)
		}
		isProtected := slices.ContainsFunc(v.others, func(other *outline) bool {
			return other.name < v.name() && slices.ContainsFunc(other.objects, protects) &&
				!disjoint(selects, other.namespaces)
		})
		if isProtected && v.mayLackProtection(own, variants, complete) {
			kinds = append(kinds, own.GroupVersionKind)
		}
	}
	return kinds
}

func isProtected(object *unstructured.Unstructured) bool {
	return object.GetAnnotations()[v1alpha1.DeletionProtectionAnnotation] == "true"
}
