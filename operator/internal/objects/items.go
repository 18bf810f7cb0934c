package objects

import (
	"slices"
	"strings"
)

// items holds the items of a kind. It is not safe for concurrent use.
type items struct {
	// byNamespace has the items of each namespace in the order of their names.
	byNamespace map[string][]*item
	// byTemplate has, for each template, how many items in each namespace have its label.
	byTemplate map[string]map[string]int
}

func newItems() items {
	return items{byNamespace: map[string][]*item{}, byTemplate: map[string]map[string]int{}}
}

// find returns the position of an item in a namespace, or where it would be.
func (s items) find(namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(s.byNamespace[namespace], name, func(i *item, name string) int {
		return strings.Compare(i.name, name)
	})
}

// put stores an item, and returns the one that it replaces, or nil.
func (s items) put(added *item) *item {
	s.count(added, 1)
	present := s.byNamespace[added.namespace]
	at, exists := s.find(added.namespace, added.name)
	if !exists {
		s.byNamespace[added.namespace] = slices.Insert(present, at, added)
		return nil
	}
	old := present[at]
	present[at] = added
	s.count(old, -1)
	return old
}

// remove removes an item, and reports whether there was one of this name.
func (s items) remove(namespace, name string) bool {
	at, exists := s.find(namespace, name)
	if !exists {
		return false
	}
	present := s.byNamespace[namespace]
	s.count(present[at], -1)
	if len(present) == 1 {
		delete(s.byNamespace, namespace)
	} else {
		s.byNamespace[namespace] = slices.Delete(present, at, at+1)
	}
	return true
}

func (s items) count(i *item, change int) {
	namespaces := s.byTemplate[i.template]
	if namespaces == nil {
		namespaces = map[string]int{}
		s.byTemplate[i.template] = namespaces
	}
	if namespaces[i.namespace] += change; namespaces[i.namespace] > 0 {
		return
	}
	if delete(namespaces, i.namespace); len(namespaces) == 0 {
		delete(s.byTemplate, i.template)
	}
}

// of returns the items that have a template's label.
func (s items) of(template string) []*item {
	var found []*item
	for namespace := range s.byTemplate[template] {
		for _, i := range s.byNamespace[namespace] {
			if i.template == template {
				found = append(found, i)
			}
		}
	}
	return found
}

// except returns the items that a list does not have.
func (s items) except(list []*item) []*item {
	listed := newItems()
	for _, i := range list {
		listed.put(i)
	}
	var others []*item
	for namespace, present := range s.byNamespace {
		for _, i := range present {
			if _, isListed := listed.find(namespace, i.name); !isListed {
				others = append(others, i)
			}
		}
	}
	return others
}
