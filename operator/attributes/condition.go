package attributes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// maxCondition bounds the length of an expression, of which CEL reads 100,000 characters.
const maxCondition = 60_000

// nameSet are the names of attributes, by kind.
type nameSet map[v1alpha1.AttributeKind]map[string]bool

func (n nameSet) add(attribute Attribute) {
	if n[attribute.Kind] == nil {
		n[attribute.Kind] = map[string]bool{}
	}
	n[attribute.Kind][attribute.Name] = true
}

// Conditions returns CEL expressions for the matchConditions of webhooks, of which each finds the requests that touch
// some of the protected names; nobody else needs to be asked about. It is one, unless there are very many names. A
// request is found too when it only moves names around within a list of templates. marker is a further annotation to
// look for, so that the API server can be seen to go by these expressions.
func (r *Rules) Conditions(marker string) []string {
	protected, guarded := []Attribute{}, map[Attribute]bool{}
	r.all(func(rule Rule) {
		protected = append(protected, rule.Attribute())
		if rule.GuardDeletion {
			guarded[rule.Attribute()] = true
		}
	})
	slices.SortFunc(protected, func(a, b Attribute) int { return strings.Compare(a.String(), b.String()) })
	touched, deleted := nameSet{}, nameSet{}
	touched.add(Attribute{v1alpha1.AnnotationAttribute, marker})
	var conditions []string
	length := 0
	for _, attribute := range slices.Compact(protected) {
		if length += 2 * (len(attribute.Name) + 10); length > maxCondition {
			conditions = append(conditions, condition(touched, deleted))
			touched, deleted, length = nameSet{}, nameSet{}, 0
		}
		touched.add(attribute)
		if guarded[attribute] {
			deleted.add(attribute)
		}
	}
	return append(conditions, condition(touched, deleted))
}

// GuardDeletion tells whether any rule guards deletions.
func (r *Rules) GuardDeletion() bool {
	guards := false
	r.all(func(rule Rule) { guards = guards || rule.GuardDeletion })
	return guards
}

// condition is evaluated on every write in the cluster, so that it looks at an object's own metadata first, and at
// templates only where there are some that differ. Nothing is taken for granted about the shape of custom resources: an
// error in the expression would refuse the request.
func condition(touched, deleted nameSet) string {
	names, evicted := literal(touched), ""
	if len(deleted) > 0 {
		names = "request.operation == 'DELETE' ? " + literal(deleted) + " : " + names
		// What is evicted is deleted, and the request doesn't say what that is like.
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

// literal is a map of maps in CEL. Look-ups in it cost the same however many names there are.
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

// hasTemplates tells whether an object has any of the fields in which templates are.
func hasTemplates(object string) string {
	inSpec := map[string]bool{"'metadata'": true}
	for _, place := range places {
		if len(place) > 1 && place[0] == "spec" {
			inSpec["'"+place[1]+"'"] = true
		}
	}
	return fmt.Sprintf("('template' in %[1]s || 'data' in %[1]s && type(%[1]s.data) == map && 'spec' in %[1]s.data || "+
		"'spec' in %[1]s && type(%[1]s.spec) == map && [%[2]s].exists(t, t in %[1]s.spec))",
		object, strings.Join(slices.Sorted(maps.Keys(inSpec)), ", "))
}

// inTemplates tells whether the templates of an object have protected attributes that those of another haven't. Lists
// of templates are compared as a whole.
func inTemplates(object, other string) string {
	const protected = "type(a) == map && names.exists(f, f in a && type(a[f]) == map && a[f].exists(k, k in names[f]"
	var pairs, lists []string
	for _, place := range places[1:] {
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

// reach is a list of what is at the end of a path, or of nothing.
func reach(object string, path []string) string {
	steps := []string{"[" + object + "]"}
	for _, field := range path {
		steps = append(steps, fmt.Sprintf(".map(v, type(v) == map && '%[1]s' in v, v['%[1]s'])", field))
	}
	return strings.Join(steps, "")
}
