package output

import (
	"fmt"
	"slices"
	"strings"
)

// Count returns a number with a noun, in the plural unless the number is 1: "2 namespaces".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// FirstFew returns the first three names in alphabetical order without duplicates, and the number of the others.
func FirstFew(names []string) string {
	const few = 3
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	return WithMore(names[:min(len(names), few)], len(names))
}

// WithMore returns the names that are listed of a number of them, and the number of the others.
func WithMore(names []string, total int) string {
	text := strings.Join(names, ", ")
	if others := total - len(names); others > 0 {
		text += fmt.Sprintf(" and %d more", others)
	}
	return text
}

// Position returns a path with a line number. It returns only the path if line is 0.
func Position(path string, line int) string {
	if line == 0 {
		return path
	}
	return fmt.Sprintf("%s:%d", path, line)
}
