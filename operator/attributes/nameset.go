package attributes

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// nameSet is a set of names of attributes, by kind.
type nameSet map[v1alpha1.AttributeKind]map[string]bool

func (n nameSet) add(attribute Attribute) {
	if n[attribute.Kind] == nil {
		n[attribute.Kind] = map[string]bool{}
	}
	n[attribute.Kind][attribute.Name] = true
}

// contain returns a CEL expression that reports whether the set contains the attribute in a field of metadata with a
// key.
func (n nameSet) contain(field, key string) string {
	sorted := func(kind v1alpha1.AttributeKind) []string { return slices.Sorted(maps.Keys(n[kind])) }
	return fmt.Sprintf("(%s == 'labels' ? %s : %s)", field,
		search(sorted(v1alpha1.LabelAttribute), key, maxParts),
		search(sorted(v1alpha1.AnnotationAttribute), key, maxParts))
}

const (
	// partLength is the length up to which a search compares a key with all names of a part. The API server counts the
	// length of a string as the cost of a comparison, and denies a write that costs too much.
	partLength = 1000
	// maxParts is the largest number of parts into which a search splits many names. More parts would take less time
	// to search, but more time to compile.
	maxParts = 64
)

// search returns a CEL expression that reports whether a key is one of some sorted names. It is a binary search for one
// of at most some number of parts. A part is a string that contains names, which CEL compiles faster than a list.
func search(names []string, key string, parts int) string {
	if len(names) == 0 {
		return "false"
	}
	prefix := commonPrefix(names[0], names[len(names)-1])
	rests := make([]string, 0, len(names))
	for _, name := range names {
		rests = append(rests, name[len(prefix):])
	}
	part := strings.Join(rests, ",")
	if half := len(names) / 2; len(part) > partLength && parts > 1 && half > 0 {
		return fmt.Sprintf("(%s < '%s' ? %s : %s)", key, names[half],
			search(names[:half], key, parts/2), search(names[half:], key, parts/2))
	}
	return fmt.Sprintf("%[1]s.startsWith('%[2]s') && ',%[3]s,'.contains(',' + %[1]s.substring(%[4]d) + ',')",
		key, prefix, part, len(prefix))
}

// commonPrefix returns the longest prefix of two names.
func commonPrefix(a, b string) string {
	length := 0
	for length < min(len(a), len(b)) && a[length] == b[length] {
		length++
	}
	return a[:length]
}
