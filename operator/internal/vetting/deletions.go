package vetting

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// mayChange is the question whether somebody may change a template.
func mayChange(template string) question {
	return question{
		verb: "patch", group: v1alpha1.GroupVersion.Group, resource: v1alpha1.NamespaceTemplates.Resource,
		name: template,
	}
}

// maxOverlapWarnings bounds how many templates are named that override the one that is written.
const maxOverlapWarnings = 3

// judgeOverlaps says which templates this one overrides though its author may not change them, and warns of those that
// override it.
func (v *review) judgeOverlaps(ctx context.Context) ([]error, error) {
	var overridden []overlap
	var takes []question
	warned := 0
	for _, overlap := range overlaps(v.updated, v.others) {
		if !overlap.overrides {
			if warned++; warned <= maxOverlapWarnings {
				v.warn(fmt.Sprintf("%s %s is declared by template %s too, whose name comes later: where both select a namespace, that one is populated",
					overlap.object.GroupKind(), overlap.object.Name, overlap.other))
			}
			continue
		}
		overridden, takes = append(overridden, overlap), append(takes, mayChange(overlap.other))
	}
	if v.unlimited || len(overridden) == 0 {
		return nil, nil
	}
	if missing, err := v.author.missing(ctx, []question{mayChange("")}); err != nil || len(missing) == 0 {
		return nil, err
	}
	if v.author.asked()+len(takes) > maxQuestions {
		return []error{
			fmt.Errorf("it overrides objects of %d other templates, more than are looked into: choose other names",
				len(takes)),
		}, nil
	}
	missing, err := v.author.missing(ctx, takes)
	var problems []error
	for i, overlap := range overridden {
		if slices.Contains(missing, takes[i]) {
			problems = append(problems,
				fmt.Errorf("%s %s is declared by template %s too, which this one overrides, since its name comes later: %s needs the right to %s, "+
					"or chooses another name", overlap.object.GroupKind(), overlap.object.Name, overlap.other, v.author,
					takes[i]))
		}
	}
	return problems, err
}

// judgeDeletions says of which kinds the author may not delete objects, though the edit may have it done. complete says
// that the variants are all combinations of the overlays.
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
	left, err := v.judgeLeft(ctx, variants, complete)
	return append(problems, left...), err
}

// judgeLeft says of which kinds the author may not delete objects, though there are some with the template's label that
// it does not declare: an earlier template of its name has left them, or this one when it selected other namespaces.
func (v *review) judgeLeft(ctx context.Context, variants []render.Variant, complete bool) ([]error, error) {
	resources, err := v.resources(v.newKinds())
	if err != nil {
		return nil, err
	}
	var problems []error
	for _, kind := range resources {
		missing, err := v.author.missing(ctx, []question{kind.may("delete")})
		if err != nil {
			return nil, err
		}
		if len(missing) == 0 || kind.guessed {
			continue
		}
		left, err := v.left(ctx, kind.kind, variants, complete)
		if err != nil {
			return nil, err
		}
		if left != nil {
			problems = append(problems,
				fmt.Errorf("%s %s in namespace %s is left from template %s, and would be deleted: %s needs the right to %s in all namespaces, "+
					"or chooses another name for the template", kind.kind.GroupKind(), left.Name, left.Namespace,
					v.name(),
					v.author, missing[0]))
		}
	}
	return problems, nil
}

// newKinds returns the kinds of which an edit may have objects pruned that somebody else has left: all, where it brings
// namespaces, and those that the template had none of so far.
func (v *review) newKinds() []schema.GroupVersionKind {
	if v.old == nil || v.turnsOn() || v.movesSelector() {
		return v.allKinds()
	}
	return slices.DeleteFunc(render.KindsOf(render.Declarations(v.updated)), func(kind schema.GroupVersionKind) bool {
		return slices.Contains(v.old.Status.Kinds, v1alpha1.GroupKind{Group: kind.Group, Kind: kind.Kind})
	})
}

// left returns an object of a kind that carries the template's label, and that the template may not declare where it
// is, or nil.
func (v *review) left(
	ctx context.Context, kind schema.GroupVersionKind, variants []render.Variant, complete bool,
) (*metav1.PartialObjectMetadata, error) {
	mapping, err := v.mapper.RESTMapping(kind.GroupKind())
	if err != nil {
		return nil, err
	}
	declared := namesOf(slices.DeleteFunc(render.Declarations(v.updated), func(object render.Declaration) bool {
		return isDropped(variants, object) || !complete && patches(v.updated)
	}))[kind.GroupKind()]
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(mapping.GroupVersionKind)
	options := []client.ListOption{client.MatchingLabels{v1alpha1.TemplateNameLabel: v.name()}, client.Limit(500)}
	for {
		err := v.live.List(ctx, list, append(options, client.Continue(list.Continue))...)
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			return nil, nil // nor can the operator delete any
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
