package populate

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// A revocation does not wait for a rollout. A namespace that has an earlier revision of a template keeps only those
// grants of it that the newest revisions give, too. It gets no grant that only a newest revision gives.
//
// Some grants of earlier revisions are kept nevertheless, and so are copies. They remain where they are, and come to no
// namespace that does not have them: one that enters the template later, or whose grants ended already.

// revoke narrows the declared Roles and RoleBindings to what the newest revisions of the templates declare for the
// namespace. It removes those that have nothing left to grant, and copies that the newest revisions do not make. If the
// newest revision of a template cannot be rendered, what it declares under the same name is unknown.
func (d *Declared) revoke(cache *render.Cache) {
	mayEnd := func(o Object) bool { return isRBAC(o.ID().GroupKind) || o.isCopy() }
	if !d.inputs.Newest.IsBehind || !slices.ContainsFunc(d.Objects, mayEnd) {
		return
	}
	newest := Declare(cache, d.Namespace, d.inputs.Newest.Templates, d.inputs.unguarded())
	var declared grantsOf
	sources := map[ObjectID]render.SourceRef{}
	for _, object := range newest.Objects {
		declared.add(object)
		sources[object.ID()], _ = render.SourceOf(object.Unstructured)
	}
	d.revoked = map[ObjectID]bool{}
	var remaining []Object
	for _, object := range d.Objects {
		id := object.ID()
		source, isCopy := render.SourceOf(object.Unstructured)
		if !mayEnd(object) || isCopy && sources[id] == source {
			remaining = append(remaining, object)
			continue
		}
		var narrowed *Object
		isUnknown := newest.lacks(object)
		if !isUnknown && !isCopy {
			var err error
			if narrowed, err = declared.narrow(object); err != nil {
				narrowed = nil
			}
		}
		isKept := isUnknown || isCopy || slices.Contains(d.inputs.Newest.Keeping, object.Template.Name)
		switch {
		case narrowed != nil && narrowed.Hash == object.Hash:
		case isKept:
			d.kept = append(d.kept, object)
		case narrowed == nil:
			d.revoked[id] = true
		}
		if narrowed != nil {
			remaining = append(remaining, *narrowed)
		}
	}
	d.Objects = remaining
}

// keep adds the objects that remain in the namespace, because it has them as they are declared. Where it has one of
// another template instead, nothing remains.
func (d *Declared) keep(existing map[ObjectID]*metav1.PartialObjectMetadata) {
	d.Objects = slices.Clone(d.Objects)
	d.kept = slices.DeleteFunc(slices.Clone(d.kept), func(object Object) bool {
		has := existing[object.ID()]
		return has != nil && labelOf(has) != object.Template.Name
	})
	for _, object := range d.kept {
		id := object.ID()
		if !object.isIn(existing[id]) {
			continue
		}
		if i := slices.IndexFunc(d.Objects, func(o Object) bool { return o.ID() == id }); i >= 0 {
			d.Objects[i] = object
		} else {
			d.Objects = append(d.Objects, object)
		}
	}
}

// keeps reports whether an object remains if the namespace has it.
func (d *Declared) keeps(id ObjectID) bool {
	return slices.ContainsFunc(d.kept, func(o Object) bool { return o.ID() == id })
}

// isIn reports whether the operator applied the object, or another state of the same source, to an existing one.
func (o *Object) isIn(existing *metav1.PartialObjectMetadata) bool {
	switch {
	case existing == nil || labelOf(existing) != o.Template.Name:
		return false
	case o.isCopy():
		return Ours(existing) &&
			existing.Annotations[v1alpha1.CopyOfAnnotation] == o.GetAnnotations()[v1alpha1.CopyOfAnnotation]
	}
	return existing.Annotations[v1alpha1.HashAnnotation] == o.Hash
}

// isMovedUnchanged reports whether an existing object, which a template has declared, equals one that another template
// will declare, except for the label that names the template. Its hash is not enough: users may write the annotation on
// an object without the label, and may change what the object grants.
func isMovedUnchanged(observed *metav1.PartialObjectMetadata, coming Object) bool {
	entry := ownEntry(observed)
	if labelOf(observed) == "" || entry == nil {
		return false
	}
	moved := coming.DeepCopy()
	labels := moved.GetLabels()
	labels[v1alpha1.TemplateNameLabel] = labelOf(observed)
	moved.SetLabels(labels)
	hash, err := render.Hash(moved)
	if err != nil || observed.Annotations[v1alpha1.HashAnnotation] != hash {
		return false
	}
	lost, err := lostFields(moved.Object, entry)
	return err == nil && len(without(lost, recordOf(observed).unowned)) == 0
}

// lacks reports whether the declaration of an object by its template is unknown.
func (d *Declared) lacks(object Object) bool {
	return d.omits(object.Template.Name, object.ID()) || d.broken(object.Template.Name, object.ID()) != ""
}

// grantsOf are the Roles and RoleBindings that the newest revisions declare.
type grantsOf struct {
	roles    map[string]*unstructured.Unstructured
	bindings []*unstructured.Unstructured
}

func (g *grantsOf) add(object Object) {
	switch object.ID().GroupKind {
	case roleKind:
		if g.roles == nil {
			g.roles = map[string]*unstructured.Unstructured{}
		}
		g.roles[object.GetName()] = object.Unstructured
	case bindingKind:
		g.bindings = append(g.bindings, object.Unstructured)
	}
}

// narrow returns a Role or a RoleBinding that grants what both an earlier and the newest revisions grant. It returns
// the earlier one itself if the newest ones grant all of it, and nil if nothing is left.
func (g *grantsOf) narrow(earlier Object) (*Object, error) {
	var content map[string]any
	var err error
	if earlier.ID().GroupKind == roleKind {
		newest := g.roles[earlier.GetName()]
		if newest == nil {
			return nil, nil
		}
		content, err = narrowRole(earlier.Unstructured, newest)
	} else {
		content, err = narrowBinding(earlier.Unstructured, g.bindings)
	}
	if err != nil || content == nil {
		return nil, err
	}
	narrowed := earlier
	narrowed.Unstructured = earlier.DeepCopy()
	maps.Copy(narrowed.Object, content)
	if reflect.DeepEqual(narrowed.Object, earlier.Object) {
		return &earlier, nil
	}
	if narrowed.Hash, err = render.Hash(narrowed.Unstructured); err != nil {
		return nil, fmt.Errorf("hash %s: %w", earlier.ID(), err)
	}
	return &narrowed, nil
}

// narrowBinding returns those subjects of a RoleBinding that newer ones bind to the same role, under whatever names, or
// nil if there are none. Otherwise a RoleBinding that gets another name would be missing until the rollout arrives.
func narrowBinding(earlier *unstructured.Unstructured, newest []*unstructured.Unstructured) (map[string]any, error) {
	var before rbacv1.RoleBinding
	if err := readAs(earlier, &before); err != nil {
		return nil, err
	}
	bound, isBound := map[rbacv1.Subject]bool{}, false
	for _, object := range newest {
		var after rbacv1.RoleBinding
		if err := readAs(object, &after); err != nil {
			return nil, err
		}
		if roleRefOf(before) != roleRefOf(after) {
			continue
		}
		isBound = true
		for _, subject := range after.Subjects {
			bound[subjectOf(subject, after.Namespace)] = true
		}
	}
	declared, _, err := unstructured.NestedSlice(earlier.Object, "subjects")
	if err != nil || !isBound {
		return nil, err
	}
	remaining := []any{}
	for i, subject := range before.Subjects {
		if bound[subjectOf(subject, before.Namespace)] {
			remaining = append(remaining, declared[i])
		}
	}
	if len(remaining) == 0 && len(declared) > 0 {
		return nil, nil
	}
	if len(declared) == 0 {
		return map[string]any{}, nil
	}
	return map[string]any{"subjects": remaining}, nil
}

// roleRefOf and subjectOf return what a RoleBinding binds, with the defaults that the API server sets.
func roleRefOf(binding rbacv1.RoleBinding) rbacv1.RoleRef {
	ref := binding.RoleRef
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	return ref
}

func subjectOf(subject rbacv1.Subject, namespace string) rbacv1.Subject {
	switch {
	case subject.Kind != rbacv1.ServiceAccountKind:
		subject.APIGroup, subject.Namespace = rbacv1.GroupName, ""
	case subject.Namespace == "":
		subject.Namespace = namespace
	}
	return subject
}

// maxNarrowed is how many texts the rules of a narrowed Role have at most. Each rule of one Role may have something in
// common with each of the other.
const maxNarrowed = 10_000

// narrowRole returns the rules that both Roles have, or nil if these would be too large a Role.
func narrowRole(earlier, newest *unstructured.Unstructured) (map[string]any, error) {
	var before, after rbacv1.Role
	if err := readAs(earlier, &before); err != nil {
		return nil, err
	}
	if err := readAs(newest, &after); err != nil {
		return nil, err
	}
	declared, isDeclared, err := unstructured.NestedSlice(earlier.Object, "rules")
	if err != nil || !isDeclared {
		return map[string]any{}, err
	}
	rules, texts := []any{}, 0
	for i, rule := range before.Rules {
		common := commonRules(rule, after.Rules)
		if len(common) == 1 && reflect.DeepEqual(common[0], rule) {
			rules = append(rules, declared[i])
			continue
		}
		for j, rule := range common {
			texts += len(rule.APIGroups) + len(rule.Resources) + len(rule.Verbs) + len(rule.ResourceNames)
			if texts > maxNarrowed {
				return nil, nil
			}
			converted, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&common[j])
			if err != nil {
				return nil, err
			}
			rules = append(rules, converted)
		}
	}
	return map[string]any{"rules": rules}, nil
}

func readAs(object *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("read %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// commonRules returns what a rule has in common with each of others. If one of them allows all of it, that is the rule
// itself.
func commonRules(rule rbacv1.PolicyRule, others []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var all []rbacv1.PolicyRule
	for _, other := range others {
		common, isEmpty := commonRule(rule, other)
		switch {
		case isEmpty || slices.ContainsFunc(all, func(rule rbacv1.PolicyRule) bool {
			return reflect.DeepEqual(rule, common)
		}):
		case reflect.DeepEqual(common, rule):
			return []rbacv1.PolicyRule{rule}
		default:
			all = append(all, common)
		}
	}
	return all
}

// commonRule returns the rule that allows the requests that both rules allow. Rules of Roles have no nonResourceURLs.
func commonRule(a, b rbacv1.PolicyRule) (common rbacv1.PolicyRule, isEmpty bool) {
	common = rbacv1.PolicyRule{
		APIGroups: commonOf(a.APIGroups, b.APIGroups, allows),
		Resources: commonOf(a.Resources, b.Resources, allowsResource),
		Verbs:     commonOf(a.Verbs, b.Verbs, allows),
	}
	isEmpty = len(common.APIGroups) == 0 || len(common.Resources) == 0 || len(common.Verbs) == 0
	switch {
	case len(a.ResourceNames) == 0:
		common.ResourceNames = b.ResourceNames
	case len(b.ResourceNames) == 0:
		common.ResourceNames = a.ResourceNames
	default:
		common.ResourceNames = commonOf(a.ResourceNames, b.ResourceNames, slices.Contains[[]string])
		isEmpty = isEmpty || len(common.ResourceNames) == 0
	}
	return common, isEmpty
}

// commonOf returns the items of two lists that both lists allow. If the second list allows all of the first one, that
// is the first list itself.
func commonOf(a, b []string, allows func(list []string, item string) bool) []string {
	if !slices.ContainsFunc(a, func(item string) bool { return !allows(b, item) }) {
		return a
	}
	var all []string
	for _, item := range slices.Concat(a, b) {
		if allows(a, item) && allows(b, item) && !slices.Contains(all, item) {
			all = append(all, item)
		}
	}
	return all
}

// allows reports whether verbs or API groups, of which "*" means all, contain one.
func allows(list []string, item string) bool {
	return slices.Contains(list, rbacv1.VerbAll) || slices.Contains(list, item)
}

// allowsResource is allows for resources, of which "*/scale" means that subresource of all.
func allowsResource(list []string, item string) bool {
	_, subresource, isSubresource := strings.Cut(item, "/")
	return allows(list, item) || isSubresource && slices.Contains(list, "*/"+subresource)
}
