package match

import (
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/rollout"
)

// Index finds the templates that select a namespace without trying every template: it keeps a template whose selector
// requires a label, such as the namespace's name or the label of a policy space, under that label, with each of the
// values that the selector allows. Index is safe for concurrent use.
type Index struct {
	mu        sync.RWMutex
	templates map[string]indexed
	// byLabel are the names of the templates that require a label. Most labels have one, for which a list is smallest.
	byLabel map[label][]string
	// scanned are the templates that require no label. Match tries each of them.
	scanned map[string]struct{}
	// byKey are the names of the templates that select by a label, by the key of the label.
	byKey map[string]map[string]struct{}
	// exemptions are those of the namespaces that have some.
	exemptions map[string]Exemptions
}

// label is a label that a selector requires.
type label struct {
	key, value string
	// anyValue reports whether the selector allows any value, or more than maxValues. The value is empty then.
	anyValue bool
}

type indexed struct {
	template *v1alpha1.NamespaceTemplate
	layers   rollout.Layers
	// selectors are those of the layers, and required the labels under which the template is found.
	selectors []labels.Selector
	// guard is the selector of the stored spec of a template that requires permission, and nil for other templates.
	// Admission checks the permission by this selector, so a namespace must match it whichever revision it has.
	guard    labels.Selector
	required []label
	// keys are those of the labels by which the template selects.
	keys []string
}

// NewIndex returns an index of templates whose spec is in force in every namespace.
func NewIndex(templates ...*v1alpha1.NamespaceTemplate) *Index {
	index := &Index{
		templates: map[string]indexed{},
		byLabel:   map[label][]string{},
		scanned:   map[string]struct{}{},
		byKey:     map[string]map[string]struct{}{},

		exemptions: map[string]Exemptions{},
	}
	for _, template := range templates {
		index.Set(template)
	}
	return index
}

// Set adds a template whose spec is in force in every namespace, or replaces the template of the same name.
func (x *Index) Set(template *v1alpha1.NamespaceTemplate) {
	x.SetLayers(template, rollout.Single(template))
}

// SetLayers adds a template, or replaces the template of the same name. Namespaces have the revisions in layers. A
// template that is disabled or whose selector is invalid is stored too: Get returns it, and Match never does.
func (x *Index) SetLayers(template *v1alpha1.NamespaceTemplate, layers rollout.Layers) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(template.Name)
	entry := indexed{template: template, layers: layers, keys: keysOf(template, layers)}
	for _, key := range entry.keys {
		if x.byKey[key] == nil {
			x.byKey[key] = map[string]struct{}{}
		}
		x.byKey[key][template.Name] = struct{}{}
	}
	if RequiresPermission(template) {
		entry.guard = labels.Nothing()
		if stored, err := Selector(template.Spec.Namespaces); err == nil {
			entry.guard = stored
		}
	}
	for _, layer := range layers {
		selector := labels.Nothing()
		if parsed, err := Selector(layer.Template.Spec.Namespaces); err == nil && DisabledReason(template) == "" {
			selector = parsed
			if required := requiredLabels(selector); required == nil {
				x.scanned[template.Name] = struct{}{}
			} else {
				entry.required = append(entry.required, required...)
			}
		}
		entry.selectors = append(entry.selectors, selector)
	}
	if _, isScanned := x.scanned[template.Name]; isScanned {
		entry.required = nil
	}
	for i, required := range entry.required {
		if !slices.Contains(entry.required[:i], required) { // two revisions may require the same label
			x.byLabel[required] = append(x.byLabel[required], template.Name)
		}
	}
	x.templates[template.Name] = entry
}

// Delete removes a template. It does nothing if there is no template of that name.
func (x *Index) Delete(name string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(name)
}

func (x *Index) remove(name string) {
	entry, ok := x.templates[name]
	if !ok {
		return
	}
	delete(x.templates, name)
	delete(x.scanned, name)
	for _, required := range entry.required {
		others := slices.DeleteFunc(x.byLabel[required], func(other string) bool { return other == name })
		if x.byLabel[required] = others; len(others) == 0 {
			delete(x.byLabel, required)
		}
	}
	for _, key := range entry.keys {
		delete(x.byKey[key], name)
		if len(x.byKey[key]) == 0 {
			delete(x.byKey, key)
		}
	}
}

// Get returns the template of a name as it is stored, or nil if there is none.
func (x *Index) Get(name string) *v1alpha1.NamespaceTemplate {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.templates[name].template
}

// Layers returns the revisions of a template that namespaces have, or nil if there is no template of that name.
func (x *Index) Layers(name string) rollout.Layers {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.templates[name].layers
}

// All returns every template as it is stored, in ascending order of names.
func (x *Index) All() []*v1alpha1.NamespaceTemplate {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := make([]*v1alpha1.NamespaceTemplate, 0, len(x.templates))
	for _, name := range slices.Sorted(maps.Keys(x.templates)) {
		all = append(all, x.templates[name].template)
	}
	return all
}

// Match returns the templates that select a namespace and that it is neither opted out of nor exempt from, in ascending
// order of names, which is the order in which they apply. Each has the spec of the revision that the namespace has.
func (x *Index) Match(ns *corev1.Namespace) []*v1alpha1.NamespaceTemplate {
	return without(x.outside(ns), x.selecting(ns))
}

// OptedOut returns the templates that would select a namespace if it was not opted out of them or exempt from them, in
// ascending order of names. It returns none for a namespace that is opted out of all templates.
func (x *Index) OptedOut(ns *corev1.Namespace) []*v1alpha1.NamespaceTemplate {
	if OptedOut(ns) {
		return nil
	}
	optedOut := x.outside(ns)
	if len(optedOut) == 0 {
		return nil
	}
	return slices.DeleteFunc(x.selecting(ns), func(t *v1alpha1.NamespaceTemplate) bool {
		return !slices.Contains(optedOut, t.Name)
	})
}

// without returns the templates that do not have one of some names.
func without(names []string, templates []*v1alpha1.NamespaceTemplate) []*v1alpha1.NamespaceTemplate {
	if len(names) == 0 {
		return templates
	}
	return slices.DeleteFunc(templates, func(t *v1alpha1.NamespaceTemplate) bool {
		return slices.Contains(names, t.Name)
	})
}

func (x *Index) selecting(ns *corev1.Namespace) []*v1alpha1.NamespaceTemplate {
	return x.find(ns, func(entry indexed, set labels.Set) *v1alpha1.NamespaceTemplate {
		layer := entry.layers.For(ns)
		if layer == nil || !entry.selects(layer, set) {
			return nil
		}
		return layer.Template
	})
}

// Ahead returns the templates whose newest revision selects a namespace and has not reached it, with the spec of that
// revision. It leaves out those that the namespace is opted out of or exempt from.
func (x *Index) Ahead(ns *corev1.Namespace) []*v1alpha1.NamespaceTemplate {
	return without(x.outside(ns), x.find(ns, func(entry indexed, set labels.Set) *v1alpha1.NamespaceTemplate {
		newest := &entry.layers[0]
		if entry.layers.For(ns) == newest || !entry.selects(newest, set) {
			return nil
		}
		return newest.Template
	}))
}

// Newest are the templates that select a namespace, each with the newest revision.
type Newest struct {
	// Templates are in ascending order of names.
	Templates []*v1alpha1.NamespaceTemplate
	// IsBehind says that Match returns other revisions. Grants of these end if the newest ones take them away.
	IsBehind bool
	// Keeping are the names of the templates whose grants the namespace keeps until the rollout arrives, if it
	// has them: those that say so, and those that no longer select it, unless their deletionPolicy is Delete.
	// Their objects would remain after the rollout, too.
	Keeping []string
}

// Newest returns the templates that select a namespace with the newest revision.
func (x *Index) Newest(ns *corev1.Namespace) Newest {
	var newest Newest
	templates := x.find(ns, func(entry indexed, set labels.Set) *v1alpha1.NamespaceTemplate {
		layer, current := &entry.layers[0], entry.layers.For(ns)
		selects := entry.selects(layer, set)
		if current != nil && current != layer && entry.selects(current, set) {
			newest.IsBehind = true
			if entry.template.Spec.Rollout.KeepsRevoked() ||
				!selects && entry.template.Spec.DeletionPolicy != v1alpha1.DeletionDelete {
				newest.Keeping = append(newest.Keeping, entry.template.Name)
			}
		}
		if !selects {
			return nil
		}
		return layer.Template
	})
	newest.Templates = without(x.outside(ns), templates)
	return newest
}

// find returns the templates that choose returns, in ascending order of names. It calls choose for each template that
// may select the namespace.
func (x *Index) find(
	ns *corev1.Namespace, choose func(indexed, labels.Set) *v1alpha1.NamespaceTemplate,
) []*v1alpha1.NamespaceTemplate {
	x.mu.RLock()
	defer x.mu.RUnlock()
	set := labelsOf(ns)
	var found []*v1alpha1.NamespaceTemplate
	try := func(names iter.Seq[string]) {
		for name := range names {
			if template := choose(x.templates[name], set); template != nil {
				found = append(found, template)
			}
		}
	}
	try(maps.Keys(x.scanned))
	for key, value := range set {
		try(slices.Values(x.byLabel[label{key: key, value: value}]))
		try(slices.Values(x.byLabel[label{key: key, anyValue: true}]))
	}
	slices.SortFunc(found, func(a, b *v1alpha1.NamespaceTemplate) int { return strings.Compare(a.Name, b.Name) })
	// Two revisions may be found by different labels.
	return slices.CompactFunc(found, func(a, b *v1alpha1.NamespaceTemplate) bool { return a.Name == b.Name })
}

// selects reports whether the selector of a layer matches labels, and the guard does, too.
func (e indexed) selects(layer *rollout.Layer, set labels.Set) bool {
	if e.guard != nil && !e.guard.Matches(set) {
		return false
	}
	for i := range e.layers {
		if &e.layers[i] == layer {
			return e.selectors[i].Matches(set)
		}
	}
	return false
}

// maxValues is the greatest number of values of a label under which a template is kept.
const maxValues = 100

// requiredLabels returns labels of which all selected namespaces have one, or nil if the selector requires none. It
// prefers the fewest values, and the label with the namespace's name to all others, because a single namespace has it.
func requiredLabels(selector labels.Selector) []label {
	var found []label
	requirements, _ := selector.Requirements()
	for _, requirement := range requirements {
		var required []label
		switch values := requirement.ValuesUnsorted(); requirement.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if len(values) == 0 || len(values) > maxValues {
				required = []label{{key: requirement.Key(), anyValue: true}}
				break
			}
			for _, value := range values {
				required = append(required, label{key: requirement.Key(), value: value})
			}
		case selection.Exists, selection.GreaterThan, selection.LessThan:
			required = []label{{key: requirement.Key(), anyValue: true}}
		default:
			continue // a namespace without the label is selected, too
		}
		if found == nil || isRarer(required, found) {
			found = required
		}
	}
	return found
}

// isRarer reports whether fewer namespaces can be expected to have one of some labels than one of others. The labels of
// each list have the same key.
func isRarer(labels, others []label) bool {
	if labels[0].anyValue != others[0].anyValue {
		return others[0].anyValue
	}
	isName := labels[0].key == corev1.LabelMetadataName
	if isName != (others[0].key == corev1.LabelMetadataName) {
		return isName
	}
	return len(labels) < len(others)
}
