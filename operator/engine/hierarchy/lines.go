package hierarchy

import (
	"strconv"
	"strings"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

// lines tell where in a file the fields of an object are.
type lines struct {
	node   *kyaml.Node
	offset int
}

// of returns the line of a field, or of the deepest one on the way to it. A number is that of an item.
func (l lines) of(path ...string) int {
	node, line := l.node, l.node.Line
	for _, step := range path {
		next, at := into(node, step)
		if next == nil {
			break
		}
		node, line = next, at
	}
	return line + l.offset
}

// into returns a field or an item of a node, and its line, or nil.
func into(node *kyaml.Node, step string) (next *kyaml.Node, line int) {
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

// item returns where an item of a list is.
func (l lines) item(number int) lines {
	if items, _ := into(l.node, "items"); items != nil {
		if item, _ := into(items, strconv.Itoa(number)); item != nil {
			return lines{item, l.offset}
		}
	}
	return l
}

// steps takes a field as it is written apart: rules[0].verbs.
func steps(field string) []string {
	return strings.Split(strings.NewReplacer("[", ".", "]", "").Replace(field), ".")
}

// field returns the line of the field that a decoder complains of, which it writes in quotes.
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
	return l.of(steps(name)...)
}
