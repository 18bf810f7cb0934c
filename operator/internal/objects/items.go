package objects

import (
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// items holds the items of a kind. It is not safe for concurrent use.
type items struct {
	// byNamespace has the items of each namespace in the order of their names.
	byNamespace map[string][]*populate.Reduced
	// byTemplate has, for each template, how many items in each namespace have its label.
	byTemplate map[string]map[string]int
}

func newItems() items {
	return items{byNamespace: map[string][]*populate.Reduced{}, byTemplate: map[string]map[string]int{}}
}

// find returns the position of an item in a namespace, or where it would be.
func (s items) find(namespace, name string) (int, bool) {
	return slices.BinarySearchFunc(s.byNamespace[namespace], name, func(i *populate.Reduced, name string) int {
		return strings.Compare(i.Name, name)
	})
}

// put stores an item, and returns the one that it replaces, or nil.
func (s items) put(added *populate.Reduced) *populate.Reduced {
	s.count(added, 1)
	present := s.byNamespace[added.Namespace]
	at, exists := s.find(added.Namespace, added.Name)
	if !exists {
		s.byNamespace[added.Namespace] = slices.Insert(present, at, added)
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

func (s items) count(i *populate.Reduced, change int) {
	namespaces := s.byTemplate[i.Template]
	if namespaces == nil {
		namespaces = map[string]int{}
		s.byTemplate[i.Template] = namespaces
	}
	if namespaces[i.Namespace] += change; namespaces[i.Namespace] > 0 {
		return
	}
	if delete(namespaces, i.Namespace); len(namespaces) == 0 {
		delete(s.byTemplate, i.Template)
	}
}

// of returns the items that have a template's label.
func (s items) of(template string) []*populate.Reduced {
	var found []*populate.Reduced
	for namespace := range s.byTemplate[template] {
		for _, i := range s.byNamespace[namespace] {
			if i.Template == template {
				found = append(found, i)
			}
		}
	}
	return found
}

// except returns the items that a list does not have.
func (s items) except(list []*populate.Reduced) []*populate.Reduced {
	listed := newItems()
	for _, i := range list {
		listed.put(i)
	}
	var others []*populate.Reduced
	for namespace, present := range s.byNamespace {
		for _, i := range present {
			if _, isListed := listed.find(namespace, i.Name); !isListed {
				others = append(others, i)
			}
		}
	}
	return others
}
