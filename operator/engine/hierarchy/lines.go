package hierarchy

import (
	"strconv"
	"strings"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

// lines finds the lines of an object's fields in its file.
type lines struct {
	node   *kyaml.Node
	offset int
}

// of returns the line of a field, or of its nearest parent that exists. In path, the items of lists are numbers.
func (l lines) of(path ...string) int {
	node, line := l.node, l.node.Line
	for _, step := range path {
		next, at := child(node, step)
		if next == nil {
			break
		}
		node, line = next, at
	}
	return line + l.offset
}

// child returns a field or an item of a node and its line, or nil if it does not exist.
func child(node *kyaml.Node, step string) (next *kyaml.Node, line int) {
	switch number, err := strconv.Atoi(step); {
	case node.Kind == kyaml.MappingNode:
		for i := 0; i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				next, line = node.Content[i+1], node.Content[i].Line
			}
		}
	case node.Kind == kyaml.SequenceNode && err == nil && number >= 0 && number < len(node.Content):
		next, line = node.Content[number], node.Content[number].Line
	}
	return next, line
}

// item returns the lines of an item of a list.
func (l lines) item(number int) lines {
	if items, _ := child(l.node, "items"); items != nil {
		if item, _ := child(items, strconv.Itoa(number)); item != nil {
			return lines{item, l.offset}
		}
	}
	return l
}

// splitField splits a path such as rules[0].verbs.
func splitField(field string) []string {
	return strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(field), ".")
}

// field returns the line of the field that is named in the error of a decoder.
func (l lines) field(problem error) int {
	_, rest, quoted := strings.Cut(problem.Error(), `unknown field "`)
	if !quoted {
		if _, rest, quoted = strings.Cut(problem.Error(), "Go struct field "); !quoted {
			return l.of()
		}
		_, rest, _ = strings.Cut(rest, ".")
		rest, _, _ = strings.Cut(rest, " ")
	}
	name, _, _ := strings.Cut(rest, `"`)
	return l.of(splitField(name)...)
}
