package match

import (
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Index finds the templates that select a namespace without trying every template: it keeps a template whose selector
// requires one exact label, such as the namespace's name, under that label. Index is safe for concurrent use.
type Index struct {
	mu        sync.RWMutex
	templates map[string]indexed
	byLabel   map[label]map[string]struct{}
	// scanned are the templates that require no exact label. Match tries each of them.
	scanned map[string]struct{}
}

type label struct{ key, value string }

type indexed struct {
	template *v1alpha1.NamespaceTemplate
	selector labels.Selector
	exact    *label
}

// NewIndex returns an index of templates.
func NewIndex(templates ...*v1alpha1.NamespaceTemplate) *Index {
	index := &Index{
		templates: map[string]indexed{},
		byLabel:   map[label]map[string]struct{}{},
		scanned:   map[string]struct{}{},
	}
	for _, template := range templates {
		index.Set(template)
	}
	return index
}

// Set adds a template or replaces the template of the same name. A template that is disabled or whose selector is
// invalid is stored too: Get returns it, and Match never does.
func (x *Index) Set(template *v1alpha1.NamespaceTemplate) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.remove(template.Name)
	entry := indexed{template: template}
	if selector, err := Selector(template.Spec.Namespaces); err == nil && DisabledReason(template) == "" {
		entry.selector = selector
		entry.exact = exactLabel(selector)
		if entry.exact == nil {
			x.scanned[template.Name] = struct{}{}
		} else {
			if x.byLabel[*entry.exact] == nil {
				x.byLabel[*entry.exact] = map[string]struct{}{}
			}
			x.byLabel[*entry.exact][template.Name] = struct{}{}
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
	if entry.exact != nil {
		delete(x.byLabel[*entry.exact], name)
		if len(x.byLabel[*entry.exact]) == 0 {
			delete(x.byLabel, *entry.exact)
		}
	}
}

// Get returns the template of a name, or nil if there is none.
func (x *Index) Get(name string) *v1alpha1.NamespaceTemplate {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.templates[name].template
}

// All returns every template, in ascending order of names.
func (x *Index) All() []*v1alpha1.NamespaceTemplate {
	x.mu.RLock()
	defer x.mu.RUnlock()
	all := make([]*v1alpha1.NamespaceTemplate, 0, len(x.templates))
	for _, name := range slices.Sorted(maps.Keys(x.templates)) {
		all = append(all, x.templates[name].template)
	}
	return all
}

// Match returns the templates that select a namespace, in ascending order of names, which is the order in which they
// apply.
func (x *Index) Match(ns *corev1.Namespace) []*v1alpha1.NamespaceTemplate {
	x.mu.RLock()
	defer x.mu.RUnlock()
	set := labelsOf(ns)
	var matched []*v1alpha1.NamespaceTemplate
	try := func(names map[string]struct{}) {
		for name := range names {
			if entry := x.templates[name]; entry.selector.Matches(set) {
				matched = append(matched, entry.template)
			}
		}
	}
	try(x.scanned)
	for key, value := range set {
		try(x.byLabel[label{key, value}])
	}
	slices.SortFunc(matched, func(a, b *v1alpha1.NamespaceTemplate) int { return strings.Compare(a.Name, b.Name) })
	return matched
}

// exactLabel returns a label that all selected namespaces have, or nil if there is no such label. It
// prefers the label with the namespace's name, because a single namespace has it.
func exactLabel(selector labels.Selector) *label {
	var exact *label
	requirements, _ := selector.Requirements()
	for _, requirement := range requirements {
		values := requirement.ValuesUnsorted()
		switch requirement.Operator() {
		case selection.In, selection.Equals, selection.DoubleEquals:
			if len(values) == 1 && (exact == nil || requirement.Key() == corev1.LabelMetadataName) {
				exact = &label{requirement.Key(), values[0]}
			}
		}
	}
	return exact
}
