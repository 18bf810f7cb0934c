package attributes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// maxCondition is about the length of an expression. CEL accepts 100,000 characters.
const maxCondition = 60_000

// nameSet is a set of names of attributes, by kind.
type nameSet map[v1alpha1.AttributeKind]map[string]bool

func (n nameSet) add(attribute Attribute) {
	if n[attribute.Kind] == nil {
		n[attribute.Kind] = map[string]bool{}
	}
	n[attribute.Kind][attribute.Name] = true
}

// Conditions returns CEL expressions for the matchConditions of webhooks. Each expression selects the requests that may
// change some of the protected attributes; there is more than one only if there are very many attributes. They also
// select requests that only reorder a list of templates, which Judge allows. marker is the name of an annotation that
// they select as well, with which the operator tests whether the API server already uses them.
func (r *Rules) Conditions(marker string) []string {
	protected, guarded := []Attribute{}, map[Attribute]bool{}
	r.all(func(rule Rule) {
		protected = append(protected, rule.Attribute())
		if rule.GuardDeletion {
			guarded[rule.Attribute()] = true
		}
	})
	slices.SortFunc(protected, func(a, b Attribute) int { return strings.Compare(a.String(), b.String()) })
	changed, deleted := nameSet{}, nameSet{}
	changed.add(Attribute{v1alpha1.AnnotationAttribute, marker})
	var conditions []string
	length := 0
	for _, attribute := range slices.Compact(protected) {
		if length += 2 * (len(attribute.Name) + 10); length > maxCondition {
			conditions = append(conditions, condition(changed, deleted))
			changed, deleted, length = nameSet{}, nameSet{}, 0
		}
		changed.add(attribute)
		if guarded[attribute] {
			deleted.add(attribute)
		}
	}
	return append(conditions, condition(changed, deleted))
}

// GuardDeletion reports whether any rule has guardDeletion.
func (r *Rules) GuardDeletion() bool {
	guards := false
	r.all(func(rule Rule) { guards = guards || rule.GuardDeletion })
	return guards
}

// condition returns the expression for some names. The API server evaluates it for every write in the cluster, so it
// compares the object's own metadata first, and templates only if they differ. It assumes nothing about the structure
// of custom resources, because an error in the expression would deny the request.
func condition(changed, deleted nameSet) string {
	names, evicted := literal(changed), ""
	if len(deleted) > 0 {
		names = "request.operation == 'DELETE' ? " + literal(deleted) + " : " + names
		// An eviction deletes the Pod, which the request does not contain.
		evicted = "request.?subResource.orValue('') == 'eviction' || " +
			"!(request.operation == 'DELETE' && has(oldObject.metadata.deletionTimestamp)) && "
	}
	return evicted + "[" + names +
		"].exists(names, [[object, oldObject], [oldObject, object]].exists(o, o[0] != null && (" +
		"names.exists(f, o[0].metadata[?f].orValue({}).exists(k, k in names[f] && o[1].?metadata[?f][?k] != o[0].metadata[f][?k])) || " +
		hasTemplates("o[0]") +
		" && (o[1] == null || ['template', 'spec', 'data'].exists(t, o[0][?t] != o[1][?t])) && (" +
		inTemplates("o[0]", "o[1]") + "))))"
}

// literal returns a map of maps in CEL. The cost of a lookup does not depend on the number of names.
func literal(names nameSet) string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(names)) {
		var keys []string
		for _, name := range slices.Sorted(maps.Keys(names[kind])) {
			keys = append(keys, fmt.Sprintf("%q: true", name))
		}
		kinds = append(kinds, fmt.Sprintf("'%s': {%s}", fields[kind], strings.Join(keys, ", ")))
	}
	return "{" + strings.Join(kinds, ", ") + "}"
}

// hasTemplates returns an expression that reports whether an object has a field that may contain templates.
func hasTemplates(object string) string {
	inSpec := map[string]bool{"'metadata'": true}
	for _, place := range metadataPaths {
		if len(place) > 1 && place[0] == "spec" {
			inSpec["'"+place[1]+"'"] = true
		}
	}
	return fmt.Sprintf("('template' in %[1]s || 'data' in %[1]s && type(%[1]s.data) == map && 'spec' in %[1]s.data || "+
		"'spec' in %[1]s && type(%[1]s.spec) == map && [%[2]s].exists(t, t in %[1]s.spec))",
		object, strings.Join(slices.Sorted(maps.Keys(inSpec)), ", "))
}

// inTemplates returns an expression that reports whether the templates of an object have protected attributes that
// those of another object do not have. It compares the elements of lists as a whole.
func inTemplates(object, other string) string {
	const protected = "type(a) == map && names.exists(f, f in a && type(a[f]) == map && a[f].exists(k, k in names[f]"
	var pairs, lists []string
	for _, place := range metadataPaths[1:] {
		i := slices.Index(place, each)
		if i < 0 {
			place = append(slices.Clone(place), "metadata")
			pairs = append(pairs, "["+reach(object, place)+", "+reach(other, place)+"]")
			continue
		}
		list := place[:i]
		lists = append(lists,
			" || "+reach(object, list)+".exists(l, type(l) == list && !(l in "+reach(other, list)+") && l.exists(i, "+
				reach("i", append(slices.Clone(place[i+1:]), "metadata"))+".exists(a, "+protected+")))))")
	}
	return "[" + strings.Join(pairs, ", ") + "].exists(m, m[0].exists(a, " + protected +
		" && !m[1].exists(b, type(b) == map && f in b && type(b[f]) == map && k in b[f] && b[f][k] == a[f][k])))))" +
		strings.Join(lists, "")
}

// reach returns an expression for a list with the value at a path, or an empty list if the path does not exist.
func reach(object string, path []string) string {
	steps := []string{"[" + object + "]"}
	for _, field := range path {
		steps = append(steps, fmt.Sprintf(".map(v, type(v) == map && '%[1]s' in v, v['%[1]s'])", field))
	}
	return strings.Join(steps, "")
}
