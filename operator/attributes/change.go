package attributes

import (
	"slices"
	"strings"
)

// AttributeChange is the change of one attribute at one path of an object. A request that changes a value removes the
// old value and sets the new one.
type AttributeChange struct {
	Attribute
	// Path is the path of the template, such as spec.template, or empty for the object's own metadata.
	Path string
	// Removed and Set are the values, in ascending order.
	Removed, Set []string
}

// Change is the change of an object. Old is nil when the object is created, and New when it is deleted.
type Change struct {
	// Namespace is empty for cluster-scoped objects, such as a Namespace.
	Namespace string
	Old, New  map[string]any
}

// changes returns the changes of protected attributes, in the order of paths and names.
func (c Change) changes(protected func(Attribute) bool) []AttributeChange {
	var changes []AttributeChange
	for _, place := range metadataPaths {
		before, after := valuesAt(c.Old, place), valuesAt(c.New, place)
		here := len(changes)
		add := func(attribute Attribute) {
			removed, set := without(before[attribute], after[attribute]), without(after[attribute], before[attribute])
			if len(removed)+len(set) > 0 && protected(attribute) {
				changes = append(changes,
					AttributeChange{Attribute: attribute, Path: strings.Join(place, "."), Removed: removed, Set: set})
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
		slices.SortFunc(changes[here:], func(a, b AttributeChange) int { return a.compare(b.Attribute) })
	}
	return changes
}

// without returns the values of a from which each value of b is removed once, in ascending order.
func without(a, b []string) []string {
	var left []string
	counts := map[string]int{}
	for _, value := range b {
		counts[value]++
	}
	for _, value := range a {
		if counts[value] > 0 {
			counts[value]--
		} else {
			left = append(left, value)
		}
	}
	slices.Sort(left)
	return slices.Compact(left)
}
