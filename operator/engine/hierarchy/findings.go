package hierarchy

import (
	"cmp"
	"slices"
	"strings"
	"sync"

	"nstpl.dev/nstpl/operator/engine/manifest"
)

// maxListed is how many violations, and how many warnings, a Result lists. A file can have hundreds of thousands.
const maxListed = 1000

// maxMessage is the length in bytes to which messages are cut. They quote values, which can be as long as a file.
const maxMessage = 1000

// shorten returns a text that is cut between two characters if it is longer than maxMessage.
func shorten(text string) string {
	if len(text) <= maxMessage {
		return text
	}
	return strings.ToValidUTF8(text[:maxMessage], "") + "…"
}

// findings are violations or warnings. It lists the first of them by path and line, and counts all. It is safe for
// concurrent use. The list does not depend on the order in which files are parsed, if each path is that of one file.
type findings[T any] struct {
	compare func(a, b T) int

	mu     sync.Mutex
	listed []T
	count  int
}

// add adds a finding after those with the same path and line.
func (f *findings[T]) add(one T) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
	at, _ := slices.BinarySearchFunc(f.listed, one, func(listed, one T) int {
		return cmp.Or(f.compare(listed, one), -1)
	})
	if at < maxListed {
		f.listed = slices.Insert(f.listed, at, one)
		f.listed = f.listed[:min(len(f.listed), maxListed)]
	}
}

// countOnly counts a finding without listing it.
func (f *findings[T]) countOnly() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.count++
}

// loader collects what is wrong with a tree, and its size.
type loader struct {
	root       string
	violations *findings[Violation]
	warnings   *findings[Warning]
	size       *treeSize
	// violated is how many violations this loader has reported. Each file has a loader of its own.
	violated int
}

func newLoader(root string, maxValues int) *loader {
	return &loader{
		root: root, size: &treeSize{maxValues: maxValues},
		violations: &findings[Violation]{compare: func(a, b Violation) int {
			return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
		}},
		warnings: &findings[Warning]{compare: func(a, b Warning) int {
			return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
		}},
	}
}

// ofFile returns a loader for one file of the tree.
func (l *loader) ofFile() *loader {
	return &loader{root: l.root, violations: l.violations, warnings: l.warnings, size: l.size}
}

func (l *loader) violate(rule, path string, line int, message, remedy string) {
	if l.violated++; l.violated > maxListed {
		l.violations.countOnly()
		return
	}
	l.violations.add(Violation{Rule: rule, Path: path, Line: line, Message: shorten(message), Remedy: shorten(remedy)})
}

func (l *loader) warn(path string, line int, message string) {
	l.warnings.add(Warning{path, line, shorten(message)})
}

// line returns the line of a field for a violation. The search needs time for each field beside it, so it returns 0 for
// a violation that is only counted.
func (l *loader) line(lines manifest.Lines, path ...string) int {
	if l.violated >= maxListed {
		return 0
	}
	return lines.Of(path...)
}
