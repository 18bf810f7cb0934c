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
	"nstpl.dev/nstpl/operator/internal/revisions"
	"nstpl.dev/nstpl/operator/internal/webhook"
)

// edit is the change of a template by a request. old is nil if the template is created, and updated is nil if it is
// deleted.
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

// invalidAnnotations returns the annotations to which an edit gives an invalid value. Templates that have one already
// can be changed otherwise.
func (e edit) invalidAnnotations() []match.InvalidAnnotation {
	if e.updated == nil {
		return nil
	}
	return slices.DeleteFunc(match.InvalidAnnotations(e.updated), func(invalid match.InvalidAnnotation) bool {
		if e.old == nil {
			return false
		}
		before, exists := e.old.Annotations[invalid.Key]
		return exists && before == invalid.Value
	})
}

// widens reports whether an edit may populate objects that were not populated before. Its author is then checked for
// the whole template. Metadata that does not affect what is populated, such as finalizers, does not count.
func (e edit) widens() bool {
	switch {
	case e.updated == nil:
		return false
	case e.old == nil:
		return true
	}
	return !equality.Semantic.DeepEqual(populatedBy(e.old.Spec), populatedBy(e.updated.Spec)) || e.exposes() ||
		e.changesTree() && len(e.updated.Spec.Authoritative) > 0
}

// changesTree reports whether an edit changes the tree of the template. Each revision in force that is authoritative
// then deletes undeclared objects in other namespaces: a template of a tree deletes them only in namespaces that the
// tree manages.
func (e edit) changesTree() bool {
	return e.old != nil && e.updated != nil && e.old.Labels[v1alpha1.TreeLabel] != e.updated.Labels[v1alpha1.TreeLabel]
}

// populatedBy returns a spec without the fields that only say how it is rolled out. Both the old and the new spec of a
// rollout were vetted, so that everyone who may change the template may pause it. What keeps revoked grants counts as
// exposing them.
func populatedBy(spec v1alpha1.NamespaceTemplateSpec) v1alpha1.NamespaceTemplateSpec {
	spec.Rollout, spec.RevisionHistoryLimit = nil, nil
	return spec
}

// changesWaves reports whether an edit changes the waves in which the template is rolled out. No template can set a
// label by which waves select, so such an edit concerns other templates although it populates the same.
func (e edit) changesWaves() bool {
	return e.old != nil && e.updated != nil &&
		!equality.Semantic.DeepEqual(revisions.WavesOf(e.old), revisions.WavesOf(e.updated))
}

// enables reports whether an edit enables a template that was disabled.
func (e edit) enables() bool {
	return e.old != nil && match.DisabledReason(e.old) != "" && match.DisabledReason(e.updated) == ""
}

// prunesAll reports whether an edit may make the operator delete all objects that the template has populated, in some
// namespaces or in all. A new owner reference counts, since the garbage collector may delete the template because of
// it.
func (e edit) prunesAll() bool {
	deletes := func(template *v1alpha1.NamespaceTemplate) bool {
		return template.Spec.DeletionPolicy == v1alpha1.DeletionDelete
	}
	switch {
	case e.updated == nil:
		return deletes(e.old) && match.DisabledReason(e.old) == ""
	case !deletes(e.updated):
		return false
	case e.old == nil:
		return len(e.updated.OwnerReferences) > 0
	}
	return !deletes(e.old) || match.DisabledReason(e.old) == "" && match.DisabledReason(e.updated) != "" ||
		!equality.Semantic.DeepEqual(e.old.OwnerReferences, e.updated.OwnerReferences) ||
		e.changesSelector() && !selectsAll(e.updated.Spec.Namespaces.LabelSelector)
}

// changesSelector reports whether an edit changes which namespaces the template selects.
func (e edit) changesSelector() bool {
	return e.old != nil && !equality.Semantic.DeepEqual(e.old.Spec.Namespaces, e.updated.Spec.Namespaces)
}

func selectsAll(selector *metav1.LabelSelector) bool {
	return selector != nil && len(selector.MatchLabels)+len(selector.MatchExpressions) == 0
}

// prunedKinds returns the kinds whose objects an edit may make the operator delete, as far as that is known without
// compiling the template: all kinds that it has ever populated, or those of the objects that it no longer declares.
func (e edit) prunedKinds() []schema.GroupVersionKind {
	if e.prunesAll() {
		return e.allKinds()
	}
	if e.old == nil {
		return nil
	}
	var kinds []schema.GroupVersionKind
	declared := render.AllDeclarations(e.updated)
	for _, before := range render.AllDeclarations(e.old) {
		if !slices.ContainsFunc(declared, before.Same) {
			kinds = append(kinds, before.GroupVersionKind)
		}
	}
	return kinds
}

// allKinds returns the kinds that the template declares or has ever populated.
func (e edit) allKinds() []schema.GroupVersionKind {
	var kinds []schema.GroupVersionKind
	for _, template := range []*v1alpha1.NamespaceTemplate{e.old, e.updated} {
		if template == nil {
			continue
		}
		kinds = append(kinds, render.KindsOf(render.AllDeclarations(template))...)
		for _, kind := range template.Status.Kinds {
			kinds = append(kinds, schema.GroupVersionKind{Group: kind.Group, Kind: kind.Kind})
		}
	}
	return kinds
}

// keeps reports whether an edit changes an object in no namespace: neither the object nor an overlay changes.
func (e edit) keeps(object render.Declaration) bool {
	return equality.Semantic.DeepEqual(e.old.Spec.Overlays, e.updated.Spec.Overlays) &&
		slices.ContainsFunc(render.Declarations(e.updated), func(after render.Declaration) bool {
			return bytes.Equal(object.Raw, after.Raw)
		})
}

// changed reports, for each object of the updated template by its ID, whether an edit adds or changes it, or may do so
// by an overlay.
func (e edit) changed(positions map[render.ObjectID]position) map[render.ObjectID]bool {
	before := map[string]bool{}
	if e.old != nil && equality.Semantic.DeepEqual(e.old.Spec.Overlays, e.updated.Spec.Overlays) {
		for _, declaration := range render.Declarations(e.old) {
			before[string(declaration.Raw)] = true
		}
	}
	changed := map[render.ObjectID]bool{}
	for id, position := range positions {
		changed[id] = !before[string(position.Raw)]
	}
	return changed
}

// droppedKinds returns the kinds of the objects of the old template that an overlay of the new one drops. If complete
// is false, variants are not all combinations of the overlays, and every overlay with patches may drop every object.
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

// isDropped reports whether at least one of the variants lacks an object.
func isDropped(variants []render.Variant, object render.Declaration) bool {
	return slices.ContainsFunc(variants, func(variant render.Variant) bool { return objectIn(variant, object) == nil })
}

// objectIn returns the object of a variant with the kind and name of a declaration, or nil.
func objectIn(variant render.Variant, object render.Declaration) *unstructured.Unstructured {
	objects := variant.Objects()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return render.IDOf(o) == object.ID() })
	if i < 0 {
		return nil
	}
	return objects[i]
}

// patches reports whether an overlay of a template has patches, which may drop objects or change any field.
func patches(template *v1alpha1.NamespaceTemplate) bool {
	return slices.ContainsFunc(template.Spec.Overlays, func(overlay v1alpha1.Overlay) bool {
		return len(overlay.Patches) > 0
	})
}

// replacedKinds returns the kinds of objects that the operator may delete and create again: those with the annotation
// for it, and RoleBindings whose roleRef an edit changes. before are the variants of the old template.
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
			object := objectIn(variant, binding)
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
