package vetting

import (
	"bytes"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/match"
	"nstpl.dev/nstpl/operator/engine/render"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// edit is what a request does to a template: old is nil if it is created, and updated if it is deleted.
type edit struct {
	old, updated *v1alpha1.NamespaceTemplate
}

func editOf(request *webhook.Request) (edit, error) {
	var e edit
	var err error
	if request.OldObject != nil {
		if e.old, err = templateOf(request.OldObject); err != nil {
			return e, err
		}
	}
	if request.Object != nil {
		e.updated, err = templateOf(request.Object)
	}
	return e, err
}

func (e edit) name() string {
	if e.updated != nil {
		return e.updated.Name
	}
	return e.old.Name
}

// widens reports whether an edit may populate what was not populated before: whoever makes it answers for the whole
// template. Other metadata, such as the operator's finalizer, decides on nothing.
func (e edit) widens() bool {
	switch {
	case e.updated == nil:
		return false
	case e.old == nil:
		return true
	}
	guarded := func(template *v1alpha1.NamespaceTemplate) bool {
		return template.Annotations[v1alpha1.RequirePermissionAnnotation] == "true"
	}
	return !equality.Semantic.DeepEqual(e.old.Spec, e.updated.Spec) || e.turnsOn() || guarded(e.old) &&
		!guarded(e.updated)
}

func (e edit) turnsOn() bool {
	return e.old != nil && match.Off(e.old) != "" && match.Off(e.updated) == ""
}

// prunesAll reports whether after an edit the operator may delete all that the template has populated, in some
// namespace or in all. An owner reference counts, since the garbage collector deletes the template by it.
func (e edit) prunesAll() bool {
	deletes := func(template *v1alpha1.NamespaceTemplate) bool {
		return template.Spec.DeletionPolicy == v1alpha1.DeletionDelete
	}
	switch {
	case e.updated == nil:
		return deletes(e.old) && match.Off(e.old) == ""
	case !deletes(e.updated):
		return false
	case e.old == nil:
		return len(e.updated.OwnerReferences) > 0
	}
	return !deletes(e.old) || match.Off(e.old) == "" && match.Off(e.updated) != "" ||
		!equality.Semantic.DeepEqual(e.old.OwnerReferences, e.updated.OwnerReferences) ||
		e.movesSelector() && !selectsAll(e.updated.Spec.Namespaces.LabelSelector)
}

// movesSelector reports whether an edit changes which namespaces the template selects.
func (e edit) movesSelector() bool {
	return e.old != nil && !equality.Semantic.DeepEqual(e.old.Spec.Namespaces, e.updated.Spec.Namespaces)
}

func selectsAll(selector *metav1.LabelSelector) bool {
	return selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
}

// prunedKinds returns the kinds of which the operator may delete objects after an edit, as far as that is known without
// compiling the template: of all that it has ever populated, or of the objects that it does not declare any more.
func (e edit) prunedKinds() []schema.GroupVersionKind {
	if e.prunesAll() {
		return e.allKinds()
	}
	if e.old == nil {
		return nil
	}
	var kinds []schema.GroupVersionKind
	declared := render.Declarations(e.updated)
	for _, before := range render.Declarations(e.old) {
		if !slices.ContainsFunc(declared, before.Same) {
			kinds = append(kinds, before.GroupVersionKind)
		}
	}
	return kinds
}

// allKinds returns the kinds that the template has ever populated, or declares.
func (e edit) allKinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, template := range []*v1alpha1.NamespaceTemplate{e.old, e.updated} {
		if template == nil {
			continue
		}
		kinds = append(kinds, render.KindsOf(render.Declarations(template))...)
		for _, kind := range template.Status.Kinds {
			kinds = append(kinds, schema.GroupVersionKind{Group: kind.Group, Kind: kind.Kind})
		}
	}
	return kinds
}

// keeps reports whether an edit leaves an object as it is in every namespace: neither it nor an overlay changes.
func (e edit) keeps(object render.Declaration) bool {
	return equality.Semantic.DeepEqual(e.old.Spec.Overlays, e.updated.Spec.Overlays) &&
		slices.ContainsFunc(render.Declarations(e.updated), func(after render.Declaration) bool {
			return bytes.Equal(object.Raw, after.Raw)
		})
}

// droppedKinds returns the kinds of those objects that namespaces may have by the old template, and lose because an
// overlay drops them. complete says that variants are all combinations of the overlays; otherwise each that patches may
// drop any.
func (e edit) droppedKinds(variants []render.Variant, complete bool) []schema.GroupVersionKind {
	if e.old == nil {
		return nil
	}
	var kinds []schema.GroupVersionKind
	for _, before := range render.Declarations(e.old) {
		if !e.keeps(before) && (!complete && patches(e.updated) || isDropped(variants, before)) {
			kinds = append(kinds, before.GroupVersionKind)
		}
	}
	return kinds
}

// isDropped reports whether one of the variants lacks an object.
func isDropped(variants []render.Variant, object render.Declaration) bool {
	return slices.ContainsFunc(variants, func(variant render.Variant) bool { return find(variant, object) == nil })
}

// find returns an object of a variant, or nil.
func find(variant render.Variant, object render.Declaration) *unstructured.Unstructured {
	objects := variant.Objects()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GroupVersionKind().GroupKind() == object.GroupKind() && o.GetName() == object.Name
	})
	if i < 0 {
		return nil
	}
	return objects[i]
}

// patches reports whether an overlay of a template may drop or change objects in more ways than by labels and
// annotations.
func patches(template *v1alpha1.NamespaceTemplate) bool {
	return slices.ContainsFunc(template.Spec.Overlays, func(overlay v1alpha1.Overlay) bool {
		return len(overlay.Patches) > 0
	})
}

// replacedKinds returns the kinds of objects that the operator may delete to create them anew: those that ask for it,
// and RoleBindings whose roleRef an edit changes. before are the variants of the old template.
func (e edit) replacedKinds(variants, before []render.Variant) []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			if object.GetAnnotations()[v1alpha1.ReplaceAnnotation] == "true" {
				kinds = append(kinds, object.GroupVersionKind())
			}
		}
	}
	if e.old == nil {
		return kinds
	}
	for _, binding := range render.Declarations(e.old) {
		if !isBinding(binding) || e.keeps(binding) {
			continue
		}
		var first any
		for _, variant := range slices.Concat(before, variants) {
			object := find(variant, binding)
			if object == nil {
				continue
			}
			if ref := object.Object["roleRef"]; first == nil {
				first = ref
			} else if !equality.Semantic.DeepEqual(first, ref) {
				kinds = append(kinds, binding.GroupVersionKind)
			}
		}
	}
	return kinds
}

func isBinding(declaration render.Declaration) bool {
	return declaration.Group == rbacv1.GroupName && declaration.Kind == "RoleBinding"
}
