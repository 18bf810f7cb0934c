package manifest

import (
	"slices"
	"strconv"
	"strings"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

// Lines finds the lines of an object's fields in its file.
type Lines struct {
	// node is nil if the document could not be parsed.
	node *kyaml.Node
	// offset is the number of lines before the document or, without a node, the line where the document begins.
	offset int
}

// Of returns the line of a field, or of its nearest parent that exists. In path, the items of lists are numbers, and a
// key that contains dots may be one step or several.
func (l Lines) Of(path ...string) int {
	_, line, _ := l.find(path)
	return line
}

// Has reports whether an object has a field.
func (l Lines) Has(path ...string) bool {
	_, _, complete := l.find(path)
	return complete
}

// find returns a field with its line, or its nearest parent that exists. complete reports whether the field exists.
func (l Lines) find(path []string) (at Lines, line int, complete bool) {
	if l.node == nil {
		return l, l.offset, false
	}
	line = l.node.Line + l.offset
	for len(path) > 0 {
		next, found, steps := child(l.node, path)
		if next == nil {
			return l, line, false
		}
		l.node, line, path = next, found+l.offset, path[steps:]
	}
	return l, line, true
}

// Text returns the Lines of a field whose text is YAML itself, such as a patch. All of its fields are in the line of
// the field itself, unless the text is a literal block. Each call parses the text.
func (l Lines) Text(path ...string) Lines {
	at, line, complete := l.find(path)
	if complete && at.node.Kind == kyaml.ScalarNode && at.node.Style&kyaml.LiteralStyle != 0 {
		if node, _, err := parseNode([]byte(at.node.Value)); err == nil && node != nil {
			return Lines{node, at.offset + at.node.Line}
		}
	}
	return Lines{nil, line}
}

// child returns what a node has at the beginning of a path, its line, and the number of steps to it. It returns nil if
// the node has nothing there.
func child(node *kyaml.Node, path []string) (next *kyaml.Node, line, steps int) {
	switch node.Kind {
	case kyaml.AliasNode:
		return child(node.Alias, path)
	case kyaml.MappingNode:
		return value(node, path)
	case kyaml.SequenceNode:
		if i, err := strconv.Atoi(path[0]); err == nil && i >= 0 && i < len(node.Content) {
			return node.Content[i], node.Content[i].Line, 1
		}
	}
	return nil, 0, 0
}

// value returns the value of the shortest key of a mapping at the beginning of a path, the line of the key, and the
// number of its steps. It returns nil if the mapping has no such key. If the mapping has the key twice, it returns the
// last one, as decoders do.
func value(node *kyaml.Node, path []string) (next *kyaml.Node, line, steps int) {
	var merged *kyaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, of := node.Content[i], node.Content[i+1]
		switch n := stepsOf(key.Value, path); {
		case n > 0 && (n <= steps || next == nil):
			next, line, steps = of, key.Line, n
		case isMerge(key) && of.Kind == kyaml.AliasNode:
			merged = of.Alias
		}
	}
	if steps != 1 && merged != nil && merged.Kind == kyaml.MappingNode {
		if inherited, at, n := value(merged, path); inherited != nil && (n < steps || next == nil) {
			return inherited, at, n
		}
	}
	return next, line, steps
}

// stepsOf returns how many steps at the beginning of a path a key is, or 0. It takes no more time than the key is long,
// although the path can be as long as a file.
func stepsOf(key string, path []string) int {
	for i, step := range path {
		rest, begins := strings.CutPrefix(key, step)
		switch {
		case begins && rest == "":
			return i + 1
		case !begins || rest[0] != '.':
			return 0
		}
		key = rest[1:]
	}
	return 0
}

// isMerge reports whether a key merges another mapping. Only the key << can, and the tag of a node takes time to find.
func isMerge(key *kyaml.Node) bool { return key.Value == "<<" && key.ShortTag() == "!!merge" }

// Items returns the lines of the first items of a list of manifests.
func (l Lines) Items(count int) []Lines {
	items := slices.Repeat([]Lines{l}, count)
	if l.node == nil {
		return items
	}
	list, _, _ := child(l.node, []string{"items"})
	if list == nil {
		return items
	}
	for i := range items {
		if item, _, _ := child(list, []string{strconv.Itoa(i)}); item != nil {
			items[i] = Lines{item, l.offset}
		}
	}
	return items
}

// SplitField returns the steps of a path such as rules[0].verbs or metadata.labels[example.com/tier].
func SplitField(field string) []string {
	var steps []string
	for field != "" {
		end := strings.IndexAny(field, ".[")
		switch {
		case end == 0 && field[0] == '[':
			step, rest, _ := strings.Cut(field[1:], "]")
			steps, field = append(steps, strings.Trim(step, `"`)), rest
		case end == 0:
			field = field[1:]
		case end < 0:
			steps, field = append(steps, field), ""
		default:
			steps, field = append(steps, field[:end]), field[end:]
		}
	}
	return steps
}
