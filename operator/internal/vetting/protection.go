package vetting

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// judgeProtection returns the kinds of objects from which the author may not remove the protection from deletion
// although the template does that, by an annotation with the value "false". A declaration without the annotation does
// not remove it from an object that a template has protected.
func (v *review) judgeProtection(ctx context.Context, variants []render.Variant, complete bool) ([]error, error) {
	kinds, err := v.resolveDeleted(v.unprotectedKinds(variants, complete))
	if err != nil {
		return nil, err
	}
	var rights []right
	for _, kind := range kinds {
		rights = append(rights, kind.right(v1alpha1.VerbUnprotect))
	}
	return v.missing(ctx, rights, nil)
}

// unprotectedKinds returns the kinds of objects from which a variant of the updated template removes the protection.
func (e edit) unprotectedKinds(variants []render.Variant, complete bool) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, declaration := range render.AllDeclarations(e.updated) {
		if !complete && patches(e.updated) && declaration.MayBeProtected ||
			slices.ContainsFunc(variants, func(variant render.Variant) bool {
				object := objectIn(variant, declaration)
				return object != nil && object.GetAnnotations()[v1alpha1.DeletionProtectionAnnotation] == "false"
			}) {
			kinds = append(kinds, declaration.GroupVersionKind)
		}
	}
	return kinds
}

// warnOfProtection warns about objects from whose declaration an edit drops the protection: those that exist keep it.
func (v *review) warnOfProtection() {
	if v.old == nil {
		return
	}
	for _, before := range render.AllDeclarations(v.old) {
		isDropped := func(now render.Declaration) bool { return now.Same(before) && !now.MayBeProtected }
		if before.MayBeProtected && slices.ContainsFunc(render.AllDeclarations(v.updated), isDropped) {
			v.warn(fmt.Sprintf("existing objects %s %s stay protected from deletion: to remove the protection, declare the "+
				"annotation %s: \"false\"", before.GroupKind(), before.Name, v1alpha1.DeletionProtectionAnnotation))
		}
	}
}
