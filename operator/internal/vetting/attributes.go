package vetting

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/render"
)

// judgeAttributes returns the protected attributes that an edit sets, or takes from populated objects, and that its
// author may not touch in all namespaces. The operator is not asked about them when it populates namespaces: it copies
// what the author answers for, as Kubernetes' controllers copy pod templates. The rules of single namespaces do not
// bind templates, which are the cluster's.
func (v *review) judgeAttributes(ctx context.Context) ([]error, error) {
	who := attributes.Requester{Name: v.request.UserInfo.Username, Groups: v.request.UserInfo.Groups}
	rules, err := v.attributes.Rules(ctx, v.request.Revision)
	if err != nil || !rules.OfCluster() || v.attributes.IsExempt(who) {
		return nil, err
	}
	var variants []render.Variant
	if v.updated != nil {
		variants, err = v.combinations(ctx)
	}
	if errors.Is(err, render.ErrCombinations) {
		return []error{
			fmt.Errorf(
				"there are protected attributes, and %w, of which not all can be checked for them: make more than one template of it", err),
		}, nil
	}
	if err != nil {
		return nil, err
	}
	index, err := v.attributes.Bindings(ctx)
	if err != nil {
		return nil, err
	}
	var problems []error
	said := map[string]bool{}
	judge := func(name string, change attributes.Change) {
		violations := rules.Judge(change, func(role v1alpha1.RoleReference) bool {
			return index.Holds(who, role, "")
		})
		for _, violation := range violations {
			problem := fmt.Errorf("user %q may not %s in all namespaces: %s", who.Name, violation.Describe(name),
				violation.Remedy())
			if !said[problem.Error()] {
				said[problem.Error()] = true
				problems = append(problems, problem)
			}
		}
	}
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			judge(nameIn(object), attributes.Change{New: object.Object})
		}
	}
	if v.old != nil {
		closed := func(object *unstructured.Unstructured) bool {
			return len(rules.Judge(attributes.Change{Old: object.Object, New: map[string]any{}},
				func(role v1alpha1.RoleReference) bool {
					return index.Holds(who, role, "")
				})) > 0
		}
		for _, lost := range losses(ctx, v.edit, variants, closed) {
			judge(nameIn(lost.before), lost.change())
		}
	}
	return problems, nil
}

func nameIn(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetName()
}

// loss is an object that namespaces have by the template that there is, and what some will have in its place: nil is
// nothing.
type loss struct {
	before, now *unstructured.Unstructured
}

func (l loss) change() attributes.Change {
	if l.now == nil {
		return attributes.Change{Old: l.before.Object}
	}
	return attributes.Change{Old: l.before.Object, New: l.now.Object}
}

// losses compares the objects of a template that its editor may not touch with what takes their places. An object that
// the template no longer declares is pruned in the namespaces that it selects, whatever its deletionPolicy says.
func losses(
	ctx context.Context, e edit, variants []render.Variant, closed func(*unstructured.Unstructured) bool,
) []loss {
	old, template := e.old, e.updated
	leaves := e.prunesAll()
	indexed := make([]map[string]*unstructured.Unstructured, len(variants))
	for i, variant := range variants {
		indexed[i] = map[string]*unstructured.Unstructured{}
		for _, object := range variant.Objects() {
			indexed[i][identify(object)] = object
		}
	}
	var all []loss
	for _, before := range variantsOf(ctx, old) {
		for _, object := range before.Objects() {
			if !closed(object) {
				continue
			}
			if leaves {
				all = append(all, loss{before: object})
			}
			for i, variant := range variants {
				now := indexed[i][identify(object)]
				if mayBecome(before.Overlays, variant.Overlays, old, template) {
					all = append(all, loss{object, now})
				}
			}
		}
	}
	return all
}

func identify(object *unstructured.Unstructured) string {
	return object.GroupVersionKind().GroupKind().String() + " " + object.GetName()
}

// variantsOf returns the variants of a template, or of one with so many overlays that nobody can look at all of them
// what each does by itself.
func variantsOf(ctx context.Context, template *v1alpha1.NamespaceTemplate) []render.Variant {
	if variants, err := render.Variants(ctx, template); err == nil {
		return variants
	}
	var variants []render.Variant
	add := func(overlays ...string) {
		if compiled, err := render.Compile(ctx, template, overlays); err == nil {
			variants = append(variants, render.Variant{Compiled: compiled, Overlays: overlays})
		}
	}
	add()
	for _, overlay := range template.Spec.Overlays {
		add(overlay.Name)
	}
	return variants
}

// mayBecome tells whether a namespace with some overlays may have others after an update. One whose selector stays as
// it was keeps its namespaces.
func mayBecome(before, after []string, old, template *v1alpha1.NamespaceTemplate) bool {
	for _, was := range old.Spec.Overlays {
		for _, is := range template.Spec.Overlays {
			if was.Name == is.Name && equality.Semantic.DeepEqual(was.Namespaces, is.Namespaces) &&
				slices.Contains(before, was.Name) != slices.Contains(after, is.Name) {
				return false
			}
		}
	}
	return true
}
