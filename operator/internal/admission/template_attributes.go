package admission

import (
	"context"
	"fmt"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/render"
)

// judgeAttributes says which protected attributes a template sets, or takes from what it has populated, that its author may not touch
// everywhere. The operator is not
// asked when it populates namespaces: it copies what the author answers for, as Kubernetes' controllers copy pod templates.
// The rules of single namespaces don't bind templates, which are the cluster's.
func (t *Template) judgeAttributes(ctx context.Context, request *Request, template *v1alpha1.NamespaceTemplate) ([]error, error) {
	who := attributes.Requester{Name: request.UserInfo.Username, Groups: request.UserInfo.Groups}
	rules, err := t.attributes.at(ctx, request.Revision)
	if err != nil || !rules.OfCluster() || t.attributes.exempt.has(who) {
		return nil, err
	}
	if len(template.Spec.Overlays) > render.MaxVariantOverlays {
		return []error{fmt.Errorf("there are protected attributes, and it has more than %d overlays, of which not every combination "+
			"can be checked for them: make more than one template of it", render.MaxVariantOverlays)}, nil
	}
	variants, err := render.Variants(template)
	if err != nil {
		return nil, err
	}
	index, err := t.attributes.bindings.Index(ctx)
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
			problem := fmt.Errorf("user %q may not %s in all namespaces: %s", who.Name, violation.What(name), violation.Remedy())
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
	for _, lost := range losses(request.OldObject, variants) {
		if lost.now != nil {
			judge(nameIn(lost.before), attributes.Change{Old: lost.before.Object, New: lost.now.Object})
		} else if template.Spec.DeletionPolicy == v1alpha1.DeletionDelete {
			judge(nameIn(lost.before), attributes.Change{Old: lost.before.Object})
		}
	}
	return problems, nil
}

func nameIn(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetName()
}

// loss is an object that namespaces have by the template that there is, and what some will have in its place: nil is nothing.
type loss struct {
	before, now *unstructured.Unstructured
}

// losses compares each object of the template that there is, if it is an update, with that of the same name in every variant.
func losses(old *unstructured.Unstructured, variants []render.Variant) []loss {
	if old == nil {
		return nil
	}
	template, err := templateOf(old)
	if err != nil {
		return nil
	}
	before, err := render.Variants(template)
	if err != nil {
		return nil // nothing is populated by it
	}
	var all []loss
	for _, stored := range distinct(before) {
		same := func(object *unstructured.Unstructured) bool {
			return object.GetName() == stored.GetName() && object.GroupVersionKind().GroupKind() == stored.GroupVersionKind().GroupKind()
		}
		lacking := slices.ContainsFunc(variants, func(variant render.Variant) bool { return !slices.ContainsFunc(variant.Objects(), same) })
		if lacking {
			all = append(all, loss{before: stored})
		}
		for _, object := range distinct(variants) {
			if same(object) {
				all = append(all, loss{stored, object})
			}
		}
	}
	return all
}

// distinct returns the objects of variants that differ.
func distinct(variants []render.Variant) []*unstructured.Unstructured {
	var found []*unstructured.Unstructured
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			if !slices.ContainsFunc(found, func(other *unstructured.Unstructured) bool { return reflect.DeepEqual(other.Object, object.Object) }) {
				found = append(found, object)
			}
		}
	}
	return found
}
