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
// key that contains dots may be one step or several. A field inside of a text that is YAML itself, such as a patch, has
// its own line if the text is a literal block.
func (l Lines) Of(path ...string) int {
	line, _ := l.find(path)
	return line
}

// Has reports whether an object has a field.
func (l Lines) Has(path ...string) bool {
	_, complete := l.find(path)
	return complete
}

// find returns the line of a field, or of its nearest parent that exists. complete reports whether the field exists.
func (l Lines) find(path []string) (line int, complete bool) {
	if l.node == nil {
		return l.offset, false
	}
	line = l.node.Line + l.offset
	for len(path) > 0 {
		if inside, isText := l.text(); isText {
			l = inside
		}
		next, found, steps := child(l.node, path)
		if next == nil {
			return line, false
		}
		l.node, line, path = next, found+l.offset, path[steps:]
	}
	return line, true
}

// text returns the Lines of the YAML in a literal block.
func (l Lines) text() (inside Lines, ok bool) {
	if l.node.Kind != kyaml.ScalarNode || l.node.Style&kyaml.LiteralStyle == 0 {
		return l, false
	}
	node, _, err := parseNode([]byte(l.node.Value))
	if err != nil || node == nil {
		return l, false
	}
	return Lines{node, l.offset + l.node.Line}, true
}

// child returns what a node has at the beginning of a path, its line, and the number of steps to it. It returns nil if
// the node has nothing there.
func child(node *kyaml.Node, path []string) (next *kyaml.Node, line, steps int) {
	switch number, err := strconv.Atoi(path[0]); {
	case node.Kind == kyaml.AliasNode:
		return child(node.Alias, path)
	case node.Kind == kyaml.MappingNode:
		for steps := 1; steps <= len(path); steps++ {
			if next, line := value(node, strings.Join(path[:steps], ".")); next != nil {
				return next, line, steps
			}
		}
	case node.Kind == kyaml.SequenceNode && err == nil && number >= 0 && number < len(node.Content):
		return node.Content[number], node.Content[number].Line, 1
	}
	return nil, 0, 0
}

// value returns the value of a mapping's key and the line of the key, or nil if the mapping does not have it. If the
// mapping has the key twice, it returns the last one, as decoders do.
func value(node *kyaml.Node, key string) (next *kyaml.Node, line int) {
	var merged *kyaml.Node
	for i := 0; i+1 < len(node.Content); i += 2 {
		switch {
		case node.Content[i].Value == key:
			next, line = node.Content[i+1], node.Content[i].Line
		case isMerge(node.Content[i]) && node.Content[i+1].Kind == kyaml.AliasNode:
			merged = node.Content[i+1].Alias
		}
	}
	if next == nil && merged != nil && merged.Kind == kyaml.MappingNode {
		return value(merged, key)
	}
	return next, line
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
