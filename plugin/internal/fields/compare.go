package fields

import (
	"maps"
	"reflect"
	"slices"
)

// Change is the difference of one field between two objects.
type Change struct {
	Path Path
	// From is the value before and To is the value after. If Added is true, the field did not exist before; if Removed
	// is true, it does not exist after.
	From, To       any
	Added, Removed bool

	// index is the position of an added item in the list after the change.
	index int
}

// Compare returns the changes that turn one object into another, in the order of the fields' names. A subtree that only
// one object has is one change.
//
// Items of lists are paired by their key fields if these identify each item, and by their values if all of them are
// scalars. Items of other lists are paired by their positions between the equal items at the begin and at the end. A
// list whose common items are in another order is one change.
func Compare(from, to map[string]any) []Change {
	return compareMaps(nil, from, to)
}

func compare(path Path, from, to any) []Change {
	if reflect.DeepEqual(from, to) {
		return nil
	}
	switch from := from.(type) {
	case map[string]any:
		if to, ok := to.(map[string]any); ok {
			return compareMaps(path, from, to)
		}
	case []any:
		if to, ok := to.([]any); ok && len(from) > 0 && len(to) > 0 {
			return compareLists(path, from, to)
		}
	}
	return []Change{{Path: path, From: from, To: to}}
}

func compareMaps(path Path, from, to map[string]any) []Change {
	names := map[string]any{}
	maps.Copy(names, from)
	maps.Copy(names, to)
	var changes []Change
	for _, name := range slices.Sorted(maps.Keys(names)) {
		before, isBefore := from[name]
		after, isAfter := to[name]
		switch at := path.field(name); {
		case !isBefore:
			changes = append(changes, Change{Path: at, To: after, Added: true})
		case !isAfter:
			changes = append(changes, Change{Path: at, From: before, Removed: true})
		default:
			changes = append(changes, compare(at, before, after)...)
		}
	}
	return changes
}

func compareLists(path Path, from, to []any) []Change {
	if steps, ok := identify(from, to); ok {
		return compareIdentified(path, from, to, steps)
	}
	return compareByPosition(path, from, to)
}

// compareIdentified compares lists whose items are identified by the steps of identify.
func compareIdentified(path Path, from, to []any, step func(item any) Step) []Change {
	id := func(item any) string { return step(item).id() }
	before, after := map[string]any{}, map[string]any{}
	for _, item := range from {
		before[id(item)] = item
	}
	for _, item := range to {
		after[id(item)] = item
	}
	kept := func(items []any, others map[string]any) []string {
		var ids []string
		for _, item := range items {
			if _, ok := others[id(item)]; ok {
				ids = append(ids, id(item))
			}
		}
		return ids
	}
	if !slices.Equal(kept(from, after), kept(to, before)) {
		return []Change{{Path: path, From: from, To: to}}
	}
	var changes []Change
	for _, item := range from {
		at := path.step(step(item))
		if other, ok := after[id(item)]; ok {
			changes = append(changes, compare(at, item, other)...)
		} else {
			changes = append(changes, Change{Path: at, From: item, Removed: true})
		}
	}
	for i, item := range to {
		if _, ok := before[id(item)]; !ok {
			changes = append(changes, Change{Path: path.step(step(item)), To: item, Added: true, index: i})
		}
	}
	return changes
}

// compareByPosition pairs the items between the equal items at the begin and at the end of two lists.
func compareByPosition(path Path, from, to []any) []Change {
	begin := 0
	for begin < min(len(from), len(to)) && reflect.DeepEqual(from[begin], to[begin]) {
		begin++
	}
	equalAtEnd := 0
	for equalAtEnd < min(len(from), len(to))-begin &&
		reflect.DeepEqual(from[len(from)-1-equalAtEnd], to[len(to)-1-equalAtEnd]) {
		equalAtEnd++
	}
	endFrom, endTo := len(from)-equalAtEnd, len(to)-equalAtEnd
	var changes []Change
	for i := begin; i < min(endFrom, endTo); i++ {
		changes = append(changes, compare(path.step(Step{Index: i}), from[i], to[i])...)
	}
	for i := endFrom - 1; i >= endTo; i-- { // from the last, so that the other positions stay valid
		changes = append(changes, Change{Path: path.step(Step{Index: i}), From: from[i], Removed: true})
	}
	for i := endFrom; i < endTo; i++ {
		changes = append(changes, Change{Path: path.step(Step{Index: i}), To: to[i], Added: true, index: i})
	}
	return changes
}
