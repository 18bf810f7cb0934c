package attributes

import (
	"cmp"
	"slices"
	"strings"
)

// Touch is what a request does to an attribute in one place of an object: it takes values away, and sets others. A
// change does both.
type Touch struct {
	Attribute
	// Place is the path of the template whose attribute it is, such as spec.template; empty for the object's own.
	Place string
	// Removed and Set are the values, in alphabetical order.
	Removed, Set []string
}

// Change is what a request does to an object. Old is nil when it is created, New when it is deleted.
type Change struct {
	// Namespace of the object, empty for one that is in none, such as a Namespace.
	Namespace string
	Old, New  map[string]any
}

// touches returns what a change does to the attributes that are protected, in the order of places and names.
func (c Change) touches(protected func(Attribute) bool) []Touch {
	var touches []Touch
	for _, place := range places {
		before, after := valuesAt(c.Old, place), valuesAt(c.New, place)
		here := len(touches)
		add := func(attribute Attribute) {
			removed, set := without(before[attribute], after[attribute]), without(after[attribute], before[attribute])
			if len(removed)+len(set) > 0 && protected(attribute) {
				touches = append(touches,
					Touch{Attribute: attribute, Place: strings.Join(place, "."), Removed: removed, Set: set})
			}
		}
		for attribute := range before {
			add(attribute)
		}
		for attribute := range after {
			if _, known := before[attribute]; !known {
				add(attribute)
			}
		}
		slices.SortFunc(touches[here:], func(a, b Touch) int {
			return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
		})
	}
	return touches
}

// without returns the values that are left of a when each of b is taken away once, sorted.
func without(a, b []string) []string {
	var left []string
	b = slices.Clone(b)
	for _, value := range a {
		if i := slices.Index(b, value); i >= 0 {
			b = slices.Delete(b, i, i+1)
		} else {
			left = append(left, value)
		}
	}
	slices.Sort(left)
	return slices.Compact(left)
}
