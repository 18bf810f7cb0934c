package vetting

import (
	"context"
	"errors"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/operator/engine/render"
)

// judgeAttributes returns the protected attributes that an edit sets, or removes from populated objects, and that its
// author may not change in all namespaces. Objects of templates that the edited one overrides count as well, and
// undeclared objects if the template is authoritative for their kinds. The rules do not apply to the operator when it
// populates namespaces, as they do not apply to Kubernetes' controllers when those copy pod templates. The rules of
// single namespaces do not apply to templates, which are objects of the cluster.
func (v *review) judgeAttributes(ctx context.Context) ([]error, error) {
	who := attributes.Requester{Name: v.request.UserInfo.Username, Groups: v.request.UserInfo.Groups}
	rules, err := v.Attributes.RulesOfCluster(ctx)
	if err != nil || !rules.OfCluster() || v.Attributes.IsExempt(who) {
		return nil, err
	}
	var variants []render.Variant
	if v.updated != nil {
		variants, err = v.combinations(ctx)
	}
	if errors.Is(err, render.ErrCombinations) {
		return []error{
			fmt.Errorf("cannot check its protected attributes, since %w: split the template into several", err),
		}, nil
	}
	if err != nil {
		return nil, err
	}
	index, err := v.Attributes.Bindings(ctx)
	if err != nil {
		return nil, err
	}
	var problems []error
	reported := map[string]bool{}
	judge := func(name string, change attributes.Change) {
		violations := rules.Judge(change, func(role v1alpha1.RoleReference) bool {
			return index.Holds(who, role, "")
		})
		for _, violation := range violations {
			problem := fmt.Errorf("user %q may not %s in all namespaces: %s", who.Name, violation.Describe(name),
				violation.Remedy())
			if !reported[problem.Error()] {
				reported[problem.Error()] = true
				problems = append(problems, rightsProblem{problem})
			}
		}
	}
	for _, variant := range variants {
		for _, object := range variant.Objects() {
			judge(nameOf(object), attributes.Change{New: object.Object})
		}
	}
	for _, change := range v.namespaceChanges(rules, v.overrides) {
		judge("Namespaces", change)
	}
	guarded, err := v.guardedDeletions(ctx, rules)
	if err != nil {
		return nil, err
	}
	for _, change := range guarded {
		judge("undeclared objects (authoritative)", change)
	}
	isProtected := func(object *unstructured.Unstructured) bool {
		return len(rules.Judge(attributes.Change{Old: object.Object, New: map[string]any{}},
			func(role v1alpha1.RoleReference) bool {
				return index.Holds(who, role, "")
			})) > 0
	}
	lost, err := v.overriddenLosses(ctx, variants, isProtected)
	if err != nil {
		return nil, err
	}
	if v.old != nil {
		lost = append(lost, losses(ctx, v.edit, variants, isProtected)...)
	}
	for _, one := range lost {
		judge(nameOf(one.before), one.change())
	}
	return problems, nil
}

// guardedDeletions returns the deletions that rules guard and that an authoritative template makes the operator make,
// of objects of other users. An author who may bind all ClusterRoles may have them deleted, such as nstpl-sync: that
// user could hold every role.
func (v *review) guardedDeletions(ctx context.Context, rules *attributes.Rules) ([]attributes.Change, error) {
	if !v.widens() || len(v.updated.Spec.Authoritative) == 0 ||
		v.updated.Spec.AuthoritativePolicy == v1alpha1.AuthoritativeReport {
		return nil, nil
	}
	changes := rules.GuardedDeletions()
	if len(changes) == 0 {
		return nil, nil
	}
	missing, err := v.author.missing(ctx, []right{
		{verb: "bind", group: rbacv1.GroupName, resource: "clusterroles"},
		{verb: "create", group: rbacv1.GroupName, resource: "clusterrolebindings"},
	})
	if err != nil || len(missing) == 0 {
		return nil, err
	}
	return changes, nil
}

func nameOf(object *unstructured.Unstructured) string {
	return object.GetKind() + " " + object.GetName()
}

// loss is an object that namespaces have because of the stored template, and the object that replaces it in some of
// them. now is nil if the object is deleted there.
type loss struct {
	before, now *unstructured.Unstructured
}

func (l loss) change() attributes.Change {
	if l.now == nil {
		return attributes.Change{Old: l.before.Object}
	}
	return attributes.Change{Old: l.before.Object, New: l.now.Object}
}

// losses returns the protected objects of the stored template with the objects that may replace them. isProtected
// reports whether the author may not remove an object's attributes. An object that the template no longer declares is
// pruned in the namespaces that it selects, with any deletionPolicy.
func losses(
	ctx context.Context, e edit, variants []render.Variant, isProtected func(*unstructured.Unstructured) bool,
) []loss {
	old, template := e.old, e.updated
	prunesAll := e.prunesAll()
	indexed := make([]map[render.ObjectID]*unstructured.Unstructured, len(variants))
	for i, variant := range variants {
		indexed[i] = map[render.ObjectID]*unstructured.Unstructured{}
		for _, object := range variant.Objects() {
			indexed[i][render.IDOf(object)] = object
		}
	}
	var all []loss
	for _, before := range variantsOf(ctx, old) {
		for _, object := range before.Objects() {
			if !isProtected(object) {
				continue
			}
			if prunesAll {
				all = append(all, loss{before: object})
			}
			for i, variant := range variants {
				now := indexed[i][render.IDOf(object)]
				if mayFollow(before.Overlays, variant.Overlays, old, template) {
					all = append(all, loss{object, now})
				}
			}
		}
	}
	return all
}

// variantsOf returns the variants of a template. If it has too many combinations of overlays, variantsOf returns the
// template without overlays, and with each overlay alone.
func variantsOf(ctx context.Context, template *v1alpha1.NamespaceTemplate) []render.Variant {
	if variants, err := render.Variants(ctx, template); err == nil {
		return variants
	}
	return eachOverlay(ctx, template)
}

// eachOverlay returns the template without overlays, and with each overlay alone. It omits what cannot be compiled.
func eachOverlay(ctx context.Context, template *v1alpha1.NamespaceTemplate) []render.Variant {
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

// mayFollow reports whether a namespace with the overlays before may have the overlays after as a result of an update.
// An overlay whose selector does not change keeps its namespaces.
func mayFollow(before, after []string, old, template *v1alpha1.NamespaceTemplate) bool {
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
