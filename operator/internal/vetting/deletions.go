package vetting

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// rightToChange returns the right to change a template; an empty name stands for every template.
func rightToChange(template string) right {
	return right{
		verb: "patch", group: v1alpha1.GroupVersion.Group, resource: v1alpha1.NamespaceTemplates.Resource,
		name: template,
	}
}

// maxOverlapWarnings limits the warnings about other templates that override objects of the template.
const maxOverlapWarnings = 3

// judgeOverlaps returns the templates whose objects this one overrides although its author may not change them. It
// warns about templates that override objects of this one.
func (v *review) judgeOverlaps(ctx context.Context) ([]error, error) {
	var overridden []overlap
	var rights []right
	warned := 0
	for _, overlap := range overlaps(v.updated, v.others) {
		if !overlap.overrides {
			if warned++; warned <= maxOverlapWarnings {
				v.warn(fmt.Sprintf("template %[3]s declares %[1]s %[2]s, too: in namespaces that both select, the object of %[3]s is populated, since its "+
					"name comes later in the alphabet",
					overlap.object.GroupKind(), overlap.object.Name, overlap.other))
			}
			continue
		}
		overridden, rights = append(overridden, overlap), append(rights, rightToChange(overlap.other))
	}
	if v.unlimited || len(overridden) == 0 {
		return nil, nil
	}
	if missing, err := v.author.missing(ctx, []right{rightToChange("")}); err != nil || len(missing) == 0 {
		return nil, err
	}
	if len(v.author.answers)+len(rights) > maxReviews {
		return []error{
			fmt.Errorf("it overrides objects of %d other templates, which are too many to check: choose other names",
				len(rights)),
		}, nil
	}
	missing, err := v.author.missing(ctx, rights)
	var problems []error
	for i, overlap := range overridden {
		if slices.Contains(missing, rights[i]) {
			problems = append(problems,
				rightsProblem{fmt.Errorf("it overrides %s %s of template %s, since its name comes later in the alphabet: "+
					"%s needs the right to %s, or chooses another name for the template or the object",
					overlap.object.GroupKind(), overlap.object.Name, overlap.other, v.author, rights[i])})
		}
	}
	return problems, err
}

// judgeDeletions returns the kinds whose objects the author may not delete although the edit may make the operator
// delete some. complete is true if the variants are all combinations of the overlays.
func (v *review) judgeDeletions(ctx context.Context, variants []render.Variant, complete bool) ([]error, error) {
	var before []render.Variant
	if v.old != nil && slices.ContainsFunc(render.Declarations(v.old), func(d render.Declaration) bool {
		return isBinding(d) && !v.keeps(d)
	}) {
		before = variantsOf(ctx, v.old)
	}
	problems, err := v.missing(ctx, nil,
		slices.Concat(v.droppedKinds(variants, complete), v.replacedKinds(variants, before)))
	if err != nil {
		return nil, err
	}
	leftovers, err := v.judgeLeftovers(ctx, variants, complete)
	return append(problems, leftovers...), err
}

// judgeLeftovers returns the kinds whose objects the author may not delete although objects with the template's label
// exist that the template does not declare. They remain from an earlier template of this name, or from the time when
// the template selected other namespaces.
func (v *review) judgeLeftovers(ctx context.Context, variants []render.Variant, complete bool) ([]error, error) {
	resources, err := v.resolveDeleted(v.newKinds())
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, kind := range resources {
		missing, err := v.author.missing(ctx, []right{kind.right("delete")})
		if err != nil {
			return nil, err
		}
		if len(missing) == 0 || kind.guessed {
			continue
		}
		object, err := v.leftover(ctx, kind.kind, variants, complete)
		if err != nil {
			return nil, err
		}
		if object != nil {
			problems = append(problems,
				rightsProblem{fmt.Errorf("%s %s in namespace %s remains from an earlier template %s and would be deleted: "+
					"%s needs the right to %s in all namespaces, or chooses another name for the template",
					kind.kind.GroupKind(), object.Name, object.Namespace, v.name(), v.author, missing[0])})
		}
	}
	return problems, nil
}

// newKinds returns the kinds of which leftovers may be pruned after an edit: all kinds if the template selects other
// namespaces than before, and otherwise those that the template has not populated so far. Roles and RoleBindings are
// pruned also if the template declares none.
func (v *review) newKinds() []schema.GroupVersionKind {
	grants := rbacv1.SchemeGroupVersion
	kinds := []schema.GroupVersionKind{grants.WithKind("Role"), grants.WithKind("RoleBinding")}
	if v.old == nil || v.enables() || v.changesSelector() {
		return append(kinds, v.allKinds()...)
	}
	kinds = append(kinds, render.KindsOf(render.AllDeclarations(v.updated))...)
	return slices.DeleteFunc(kinds, func(kind schema.GroupVersionKind) bool {
		return slices.Contains(v.old.Status.Kinds, v1alpha1.GroupKind{Group: kind.Group, Kind: kind.Kind})
	})
}

// leftover returns an object of a kind that has the template's label and that the template does not declare with
// certainty, or nil.
func (v *review) leftover(
	ctx context.Context, kind schema.GroupVersionKind, variants []render.Variant, complete bool,
) (*metav1.PartialObjectMetadata, error) {
	mapping, err := v.Mapper.RESTMapping(kind.GroupKind())
	if err != nil {
		return nil, err
	}
	declared := namesOf(slices.DeleteFunc(render.AllDeclarations(v.updated), func(object render.Declaration) bool {
		return isDropped(variants, object) || !complete && patches(v.updated)
	}))[kind.GroupKind()]
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	options := []client.ListOption{client.MatchingLabels{v1alpha1.TemplateNameLabel: v.name()}, client.Limit(500)}
	for {
		err := v.Live.List(ctx, list, append(options, client.Continue(list.Continue))...)
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil, nil // the operator cannot delete any either
		}
		if err != nil {
			return nil, fmt.Errorf("list %s of template %s: %w", kind.GroupKind(), v.name(), err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			deletes := v.old == nil && v.updated.Spec.DeletionPolicy == v1alpha1.DeletionDelete
			if object.Annotations[v1alpha1.AdoptedAnnotation] != "true" && (deletes || !declared.mayHave(object.Name)) {
				return object, nil
			}
		}
		if list.Continue == "" {
			return nil, nil
		}
	}
}
