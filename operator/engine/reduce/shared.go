package reduce

import "unique"

// Shared returns a string that equals s and shares its memory with every equal string that Shared returned.
func Shared(s string) string {
	return unique.Make(s).Value()
}

// mostShared is how many values a table keeps before it forgets those that were not used since it kept as many before.
const mostShared = 1 << 14

// Table returns one value for each key, so that objects share it. It forgets values that are no longer used, such as
// those of contents that were replaced. Objects that have a forgotten value keep it. The zero value is an empty table.
// It is not safe for concurrent use.
type Table[K comparable, V any] struct {
	recent, older map[K]V
}

// Value returns the value of a key. It calls create if the table has none.
func (t *Table[K, V]) Value(key K, create func() V) V {
	if value, ok := t.recent[key]; ok {
		return value
	}
	value, ok := t.older[key]
	if !ok {
		value = create()
	}
	if len(t.recent) == mostShared {
		t.recent, t.older = nil, t.recent
	}
	if t.recent == nil {
		t.recent = map[K]V{}
	}
	t.recent[key] = value
	return value
}
