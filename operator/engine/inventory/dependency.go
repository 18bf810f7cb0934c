package inventory

import (
	"encoding/json"
	"maps"
	"math"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Hold returns the changes that need none of the given ones, which cannot be made, and adds the others to Held. Those
// who may create or change one object of a tree may make it fail, so all that does not need it goes on: revocations
// above all. If a namespace moved to a policyspace whose template cannot be applied, it would lose what it inherits and
// get nothing instead.
func (p *Plan) Hold(changes, failed []Apply) []Apply {
	unbound := map[string]bool{}
	failed = slices.DeleteFunc(slices.Clone(failed), func(f Apply) bool {
		bound := BoundRoles(f.Declared)
		for _, name := range bound {
			unbound[name] = true
		}
		return len(bound) > 0
	})
	waiting := map[ID]bool{}
	for _, change := range changes {
		if change.bindsOneOf(unbound) {
			waiting[render.IDOf(change.Declared)] = true
			failed = append(failed, change)
		}
	}
	unmet := p.unmetBy(failed)
	var going []Apply
	for _, change := range changes {
		if waiting[render.IDOf(change.Declared)] || p.needs(change, unmet) {
			p.Held = append(p.Held, change)
			continue
		}
		going = append(going, change)
	}
	return keeping(going, unmet.contents)
}

// Keeping returns changes without the loss of what waiting ones declare, and without those that are in force then.
func Keeping(changes, waiting []Apply) []Apply { return keeping(changes, Contents(waiting)) }

func keeping(changes []Apply, contents map[string]bool) []Apply {
	var going []Apply
	for _, change := range changes {
		change = change.keeping(contents)
		if change.Live == nil || change.Replaced != nil || !IsInForce(change.Declared, change.Live) {
			going = append(going, change)
		}
	}
	return going
}

// unmet is what changes that cannot be made keep from others.
type unmet struct {
	// step is the first step of objects that everything after them needs.
	step int
	// names are those of templates and policyspaces, and above also has those of the policyspaces above these.
	names, above map[string]bool
	// contents are those of the objects that the templates declare.
	contents map[string]bool
}

func (p *Plan) unmetBy(failed []Apply) unmet {
	u := unmet{
		step: math.MaxInt, names: map[string]bool{}, above: map[string]bool{}, contents: Contents(failed),
	}
	for _, f := range failed {
		switch id := render.IDOf(f.Declared); PhaseOf(id.GroupKind) {
		case Cluster:
			u.step = min(u.step, f.Step())
		case Templates, Spaces:
			u.names[id.Name] = true
			for _, name := range p.lineageOf(id.Name) {
				u.above[name] = true
			}
		case Namespaces:
		}
	}
	return u
}

// keeping returns the change of a template without the loss of those objects whose contents are given, which other
// templates declare, perhaps with other names, unless the template declares another object of their names. The template
// is then not in force yet.
func (a Apply) keeping(contents map[string]bool) Apply {
	if len(contents) == 0 || !a.declaresAnew() {
		return a
	}
	declared, stays := objectsOf(a.Declared), contentsOf(a.Declared)
	var kept []any
	for _, object := range objectsOf(a.Live) {
		content := contentOf(object)
		isReplaced := func(other map[string]any) bool { return isSame(object, other) }
		if contents[content] && !stays[content] && !slices.ContainsFunc(declared, isReplaced) {
			kept = append(kept, object)
		}
	}
	if len(kept) == 0 {
		return a
	}
	objects, _, _ := unstructured.NestedSlice(a.Declared.Object, "spec", "templates")
	a.Declared = withAnnotation(a.Declared, v1alpha1.HashAnnotation, HashOf(a.Live)).DeepCopy()
	spec, _ := a.Declared.Object["spec"].(map[string]any)
	spec["templates"] = slices.Concat(objects, kept)
	a.isPartial = true
	return a
}

// isSame reports whether two objects of templates have the same kind and name.
func isSame(one, other map[string]any) bool {
	return render.IDOf(&unstructured.Unstructured{Object: one}) ==
		render.IDOf(&unstructured.Unstructured{Object: other})
}

// declaresAnew reports whether an object exists, and a commit changes what is declared for it. Otherwise, the change
// repairs it.
func (a Apply) declaresAnew() bool {
	return a.Live != nil && (a.isPartial || HashOf(a.Live) != HashOf(a.Declared))
}

// needs reports whether a change must not be made before those that cannot be made.
func (p *Plan) needs(change Apply, unmet unmet) bool {
	id := render.IDOf(change.Declared)
	if unmet.step < math.MaxInt && (PhaseOf(id.GroupKind) != Cluster || change.Step() > unmet.step) {
		return true
	}
	isBelow := func() bool {
		return slices.ContainsFunc(p.lineageOf(id.Name), func(name string) bool { return unmet.names[name] })
	}
	switch PhaseOf(id.GroupKind) {
	case Templates:
		// The namespaces that it selects have the labels of their policyspaces only once they have moved.
		return change.declaresAnew() && selects(change.Live) != selects(change.Declared) && isBelow()
	case Spaces, Namespaces:
		return (change.Live == nil || change.Moves()) && isBelow() ||
			change.declaresQuota() && (unmet.above[id.Name] || isBelow())
	case Cluster:
	}
	return false
}

// BoundRoles returns the ClusterRoles that an object of a tree allows the operator to bind, and none for other objects.
// Templates that bind them need this object, and the rest of the tree does not: everyone who may change one directory
// of the tree can have it fail.
func BoundRoles(object *unstructured.Unstructured) []string {
	if render.IDOf(object).GroupKind != roleKind || !hierarchy.IsBindRole(object.GetName()) {
		return nil
	}
	var bound []string
	rules, _, _ := unstructured.NestedFieldNoCopy(object.Object, "rules")
	list, _ := rules.([]any)
	for _, item := range list {
		rule, _ := item.(map[string]any)
		names, _, _ := unstructured.NestedStringSlice(rule, "resourceNames")
		bound = append(bound, names...)
	}
	return bound
}

// bindsOneOf reports whether a template is to bind one of the given ClusterRoles that it does not bind yet.
func (a Apply) bindsOneOf(roles map[string]bool) bool {
	before := BoundBy(a.Live)
	return slices.ContainsFunc(BoundBy(a.Declared), func(name string) bool {
		return roles[name] && !slices.Contains(before, name)
	})
}

// selects returns the selector of a template, encoded as JSON.
func selects(template *unstructured.Unstructured) string {
	selector, _, _ := unstructured.NestedFieldNoCopy(template.Object, "spec", "namespaces")
	data, _ := json.Marshal(selector) // was decoded from JSON
	return string(data)
}

// declaresQuota reports whether a commit gives a policyspace another quota, which may come from a policyspace above it
// or go to one below it.
func (a Apply) declaresQuota() bool {
	if !a.declaresAnew() || render.IDOf(a.Declared).GroupKind != spaceKind {
		return false
	}
	before, _, _ := unstructured.NestedMap(a.Live.Object, "spec", "quota")
	after, _, _ := unstructured.NestedMap(a.Declared.Object, "spec", "quota")
	return !equality.Semantic.DeepEqual(before, after)
}

// Contents returns the contents of all objects that the templates among some changes declare.
func Contents(changes []Apply) map[string]bool {
	all := map[string]bool{}
	for _, change := range changes {
		maps.Copy(all, contentsOf(change.Declared))
	}
	return all
}

// HasContent reports whether an object is a template that declares an object of the given contents, perhaps with
// another name.
func HasContent(template *unstructured.Unstructured, contents map[string]bool) bool {
	return slices.ContainsFunc(objectsOf(template), func(object map[string]any) bool {
		return contents[contentOf(object)]
	})
}

// contentsOf returns the contents of a template's objects. It returns none for other kinds.
func contentsOf(template *unstructured.Unstructured) map[string]bool {
	contents := map[string]bool{}
	for _, object := range objectsOf(template) {
		contents[contentOf(object)] = true
	}
	return contents
}

// contentOf returns an object without its name, encoded as JSON.
func contentOf(object map[string]any) string {
	nameless := maps.Clone(object)
	if metadata, ok := object["metadata"].(map[string]any); ok {
		others := maps.Clone(metadata)
		delete(others, "name")
		nameless["metadata"] = others
	}
	data, _ := json.Marshal(nameless) // was decoded from JSON
	return string(data)
}

// objectsOf returns the objects that a template declares. It returns none for other kinds, and for nil.
func objectsOf(template *unstructured.Unstructured) []map[string]any {
	if template == nil || render.IDOf(template).GroupKind != templateKind {
		return nil
	}
	items, _, _ := unstructured.NestedFieldNoCopy(template.Object, "spec", "templates")
	list, _ := items.([]any)
	var objects []map[string]any
	for _, item := range list {
		if object, ok := item.(map[string]any); ok {
			objects = append(objects, object)
		}
	}
	return objects
}

// BoundBy returns the names of the ClusterRoles that a template binds.
func BoundBy(template *unstructured.Unstructured) []string {
	var names []string
	for _, object := range objectsOf(template) {
		if kind, _, _ := unstructured.NestedString(object, "roleRef", "kind"); kind == "ClusterRole" {
			name, _, _ := unstructured.NestedString(object, "roleRef", "name")
			names = append(names, name)
		}
	}
	return names
}

// lineageOf returns the name of a declared policyspace or namespace, and those of the policyspaces above it. A template
// of the tree has the name of the one for which it is.
func (p *Plan) lineageOf(name string) []string {
	for _, kind := range []schema.GroupKind{spaceKind, namespaceKind} {
		if object := p.declared[ID{GroupKind: kind, Name: name}]; object != nil {
			return lineage(object, p.declared)
		}
	}
	return []string{name}
}

// LiveLineage returns the names of a policyspace or namespace and of all policyspaces that it is in now. What a tree
// declares for them has these names.
func (p *Plan) LiveLineage(live *unstructured.Unstructured) []string { return lineage(live, p.live) }

// parentIn returns the policyspace that a policyspace or a namespace is in, or "".
func parentIn(object *unstructured.Unstructured) string {
	if render.IDOf(object).GroupKind == namespaceKind {
		return object.GetLabels()[v1alpha1.PolicySpaceLabel]
	}
	parent, _, _ := unstructured.NestedString(object.Object, "spec", "parent") // "" if it is not a string
	return parent
}

// lineage returns the name of an object and those of the policyspaces above it.
func lineage(object *unstructured.Unstructured, in map[ID]*unstructured.Unstructured) []string {
	names := []string{object.GetName()}
	for name := parentIn(object); name != "" && !slices.Contains(names[1:], name); {
		names = append(names, name)
		space := in[ID{GroupKind: spaceKind, Name: name}]
		if space == nil {
			break
		}
		name = parentIn(space)
	}
	return names
}
