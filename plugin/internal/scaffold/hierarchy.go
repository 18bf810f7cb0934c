package scaffold

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// hierarchy is a hierarchy of namespaces of another tool while it is converted.
type hierarchy struct {
	*draft
	tool string
	// parents has the parent of each namespace, and spaces the policy spaces: one for each namespace with children, or
	// with a quota for its subtree.
	parents map[string]string
	spaces  map[string]*space
}

func newHierarchy(tool string) *hierarchy {
	return &hierarchy{draft: &draft{}, tool: tool, parents: map[string]string{}, spaces: map[string]*space{}}
}

// setParent records the parent of a namespace, unless the namespace would become its own ancestor.
func (h *hierarchy) setParent(name, parent string) {
	if !isName(name) || !isName(parent) {
		return
	}
	for above, depth := parent, 0; above != "" && depth <= len(h.parents); above, depth = h.parents[above], depth+1 {
		if above == name {
			h.item("namespace/%s", name).need(nil, "its parent %s is below it", parent)
			return
		}
	}
	h.parents[name] = parent
}

// claimed records the parent of each namespace for which an object of its name exists in that parent. It returns the
// objects without those in conflict: tools leave a namespace alone that exists with another parent, as in parents.
func (h *hierarchy) claimed(
	objects []*unstructured.Unstructured, parents map[string]string, isConflict func(*unstructured.Unstructured) bool,
) []*unstructured.Unstructured {
	return slices.DeleteFunc(slices.Clone(objects), func(object *unstructured.Unstructured) bool {
		parent, exists := parents[object.GetName()]
		if isConflict(object) || exists && parent != object.GetNamespace() {
			h.item("namespace/%s", object.GetNamespace()).need(nil,
				"%s: it is in conflict with a namespace that exists, so it is not converted", nameOf(object.Object))
			return true
		}
		h.setParent(object.GetName(), object.GetNamespace())
		return false
	})
}

// nameFields names the fields of an object about a namespace that are not converted.
func (h *hierarchy) nameFields(object *unstructured.Unstructured, namespace string, converted ...string) {
	spec := at[map[string]any](object.Object, "spec")
	if len(unlisted(spec, converted...)) > 0 {
		h.item("namespace/%s", namespace).nameFields(nil, nameOf(object.Object)+": ", spec, nil, converted...)
	}
}

// addSpaces adds the policy spaces. A namespace with children is in the space of its own name.
func (h *hierarchy) addSpaces(quotas []*unstructured.Unstructured) {
	get := func(name string) *space {
		if h.spaces[name] == nil {
			h.spaces[name] = &space{item: h.item("namespace/%s", name), name: name}
			h.spaces[name].add("Converted from namespace %s and its descendants in %s.", name, h.tool)
			h.spaces[name].add("To let users create namespaces in it, grant them the verb use on policyspaces/%s.", name)
		}
		return h.spaces[name]
	}
	for _, parent := range slices.Sorted(maps.Values(h.parents)) {
		get(parent)
	}
	for _, quota := range quotas {
		if isName(quota.GetNamespace()) {
			s := get(quota.GetNamespace())
			s.quotas = append(s.quotas, at[map[string]any](quota.Object, "spec", "hard"))
		}
	}
	for name, s := range h.spaces {
		s.parent = h.parents[name]
		s.namespaces = append(s.namespaces, name)
	}
	for _, name := range slices.Sorted(maps.Keys(h.parents)) {
		if parent := h.parents[name]; h.spaces[name] == nil {
			h.spaces[parent].namespaces = append(h.spaces[parent].namespaces, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(h.spaces)) {
		h.addSpace(*h.spaces[name])
	}
}

// toDeclare returns an object as a template declares it. If a template cannot, ok is false, and the template has the
// reason.
func (t *template) toDeclare(object *unstructured.Unstructured) (o declared, ok bool) {
	if reason := omission(object, false); reason != "" {
		t.lose(&t.notes, "%s: %s", nameOf(object.Object), reason)
		return declared{}, false
	}
	o = clean(object)
	if err := o.replace(nothing, nil); err != nil {
		t.fail(&t.notes, nameOf(object.Object), err)
		return declared{}, false
	}
	return o, true
}

// copySecret makes a template copy a Secret. Its values do not get into the template.
func (t *template) copySecret(secret *unstructured.Unstructured) {
	if err := t.addSource(v1alpha1.Source{
		APIVersion: "v1", Kind: "Secret", Namespace: secret.GetNamespace(), Name: secret.GetName(),
	}); err != nil {
		t.fail(&t.notes, "secret/"+secret.GetName(), err)
	}
}
