package attributes

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// maxCondition is the largest length of an expression. CEL accepts 100,000 characters.
const maxCondition = 95_000

// maxKeys is the number of labels or annotations up to which the expression compares each. The API server limits the
// cost to 1,000,000, a key costs about 64, and the 256 KiB of annotations that it stores can be more than 60,000 keys.
// Judge decides about changes of larger maps.
const maxKeys = 1000

// Conditions returns CEL expressions for the matchConditions of webhooks. Each expression selects the requests that may
// change some of the protected attributes; there is more than one only if there are very many attributes. They also
// select requests that only reorder a list of templates, and those that change some of more than maxKeys labels or
// annotations, which Judge may allow. marker is the name of an annotation that they select as well, with which the
// operator tests whether the API server already uses them.
func (r *Rules) Conditions(marker string) []string {
	protected, guarded := []Attribute{{v1alpha1.AnnotationAttribute, marker}}, map[Attribute]bool{}
	r.all(func(rule Rule) {
		protected = append(protected, rule.Attribute())
		if rule.GuardDeletion {
			guarded[rule.Attribute()] = true
		}
	})
	slices.SortFunc(protected, func(a, b Attribute) int { return strings.Compare(a.String(), b.String()) })
	return conditions(slices.Compact(protected), guarded)
}

// conditions returns one expression for all attributes or, if it is too long, those for each half of them.
func conditions(protected []Attribute, guarded map[Attribute]bool) []string {
	changed, deleted := nameSet{}, nameSet{}
	for _, attribute := range protected {
		changed.add(attribute)
		if guarded[attribute] {
			deleted.add(attribute)
		}
	}
	expression := condition(changed, deleted)
	if half := len(protected) / 2; len(expression) > maxCondition && half > 0 {
		return slices.Concat(conditions(protected[:half], guarded), conditions(protected[half:], guarded))
	}
	return []string{expression}
}

// GuardDeletion reports whether any rule has guardDeletion.
func (r *Rules) GuardDeletion() bool {
	guards := false
	r.all(func(rule Rule) { guards = guards || rule.GuardDeletion })
	return guards
}

// condition returns the expression for some names. It selects all new ControllerRevisions, which only Judge reads; they
// do not change. It assumes nothing about the structure of custom resources, because an error in the expression would
// deny the request.
//
// The API server evaluates the expression for every write in the cluster. So the expression visits templates only if an
// object has some, and if they differ. The API server also compiles it after every change of the names, while all
// writes wait. The type checker of CEL takes time that is quadratic in the number of calls of generic functions, to
// which each element of a list or map counts. So one loop over paths visits all templates, and strings contain paths
// and names.
func condition(changed, deleted nameSet) string {
	test, evicted := changed.contain("f", "k"), ""
	if len(deleted) > 0 {
		test = "(request.operation == 'DELETE' ? " + deleted.contain("f", "k") + " : " + test + ")"
		// An eviction deletes the Pod, which the request does not contain. Kubernetes deletes objects whose owners do
		// not exist.
		evicted = "request.?subResource.orValue('') == 'eviction' || request.operation == 'UPDATE' && " +
			"object.metadata.?ownerReferences != oldObject.metadata.?ownerReferences || " +
			"!(request.operation == 'DELETE' && has(oldObject.metadata.deletionTimestamp)) && "
	}
	// o is the object with the attributes, and the one to which it is compared. p is a path, and r contains the values
	// of both objects at that path. m is metadata, f the field of metadata, e are the maps of the other object in that
	// field, and k is the name of an attribute. An equal map costs much less than its keys.
	isList := "type(v) == list && p[" + strconv.Itoa(listSteps) + "] == '" + each + "'"
	return "request.?resource.?resource.orValue('') == 'controllerrevisions' && request.?resource.?group.orValue('') == 'apps' && " +
		"request.operation == 'CREATE' || " + evicted + "[[object, oldObject], [oldObject, object]].exists(o, o[0] != null && (" +
		hasTemplates("o[0]") +
		" && (o[1] == null || ['template', 'spec', 'data'].exists(t, o[0][?t] != o[1][?t])) ? '" +
		paths() + "'.split(';').map(q, q.split('.')) : [[]]).exists(p, [p.size() == 0 ? " +
		"[[o[0].metadata], [o[1].?metadata.orValue({})]] : o.map(v, [v]" + steps(0, listSteps) +
		")].exists(r, r[0].exists(v, " + isList + " && v.size() > " + strconv.Itoa(maxItems) + " && !(v in r[1]) || " +
		"(" + isList + " ? (v.size() > " + strconv.Itoa(maxItems) + " ? [] : " +
		"v.filter(i, !r[1].exists(w, type(w) == list && w.size() <= " + strconv.Itoa(maxItems) + " && i in w)))" +
		steps(listSteps+1, allSteps) + " : [v])" +
		".exists(m, ['labels', 'annotations'].exists(f, " + hasMap("m", "f") + " && [r[1].map(w, " + hasMap("w", "f") +
		", w[f])].exists(e, !(m[f] in e) && (m[f].size() > " + strconv.Itoa(maxKeys) +
		" || m[f].exists(k, !e.exists(w, k in w && w[k] == m[f][k]) && " + test + ")))))))))"
}

// maxItems is up to how many items of a list the expression compares with each of the other object's. The API server
// does not limit what that costs. Judge decides about longer lists that change.
const maxItems = 100

// All paths of an expression have allSteps fields. If the field before listSteps has a list, the field at listSteps is
// each, and those after it are fields of the list's elements.
const listSteps, allSteps = 6, 10

// paths returns the paths of metadata. ';' separates paths, and '.' separates fields, of which the last may be empty.
func paths() string {
	var texts []string
	for _, above := range metadataPaths {
		path, fields := make([]string, allSteps), append(slices.Clone(above), "metadata")
		list := slices.Index(fields, each)
		if list < 0 {
			list = len(fields)
		}
		copy(path, fields[:list])
		copy(path[listSteps:], fields[list:])
		texts = append(texts, strings.Join(path, "."))
	}
	return strings.Join(texts, ";")
}

// steps returns calls that replace the values in a list by the values of their fields p[from] to p[to-1]. They drop a
// value without such a field, and keep it if the field is empty.
func steps(from, to int) string {
	var calls []string
	for i := from; i < to; i++ {
		calls = append(calls, fmt.Sprintf(
			".map(v, p[%[1]d] == '' || type(v) == map && p[%[1]d] in v, p[%[1]d] == '' ? v : v[p[%[1]d]])", i))
	}
	return strings.Join(calls, "")
}

// hasMap returns an expression that reports whether a value is a map of which a field is a map.
func hasMap(value, field string) string {
	return fmt.Sprintf("type(%[1]s) == map && %[2]s in %[1]s && type(%[1]s[%[2]s]) == map", value, field)
}

// hasTemplates returns an expression that reports whether an object has a field that may contain templates.
func hasTemplates(object string) string {
	inSpec := map[string]bool{"'metadata'": true}
	for _, above := range metadataPaths {
		if len(above) > 1 && above[0] == "spec" {
			inSpec["'"+above[1]+"'"] = true
		}
	}
	return fmt.Sprintf("('template' in %[1]s || 'data' in %[1]s && type(%[1]s.data) == map && 'spec' in %[1]s.data || "+
		"'spec' in %[1]s && type(%[1]s.spec) == map && [%[2]s].exists(t, t in %[1]s.spec))",
		object, strings.Join(slices.Sorted(maps.Keys(inSpec)), ", "))
}
