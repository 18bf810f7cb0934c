package manifest

import (
	"maps"
	"regexp"
	"slices"
	"strconv"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

// A document is plain if every YAML parser reads it alike: it has no comments, tabs, tags or anchors, and its scalars
// are names, quantities, small whole numbers, true, false, or printable text in quotes. Most documents in trees are
// plain, and need not be parsed a second time to get their JSON.
var (
	plainText     = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9._/@:-]*$`)
	plainQuantity = regexp.MustCompile(`^[1-9][0-9]{0,14}([KMGT]i|[mk])$`)
	plainNumber   = regexp.MustCompile(`^(0|[1-9][0-9]{0,14})$`)
	// words are those that YAML 1.1 reads as booleans or null, in lower case.
	words = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null)$`)
)

// plainJSON returns the JSON of a document, or false if the document is not plain.
func plainJSON(node *kyaml.Node, content []byte) ([]byte, bool) {
	for _, char := range content {
		switch {
		case char == '\n':
		case char < ' ', char > '~', char == '#', char == '%', char == '!':
			return nil, false
		}
	}
	return appendPlain(make([]byte, 0, len(content)), node)
}

func appendPlain(data []byte, node *kyaml.Node) (appended []byte, ok bool) {
	if node.Anchor != "" || node.Style&kyaml.TaggedStyle != 0 {
		return nil, false
	}
	switch node.Kind {
	case kyaml.MappingNode:
		return appendPlainMapping(data, node)
	case kyaml.SequenceNode:
		data = append(data, '[')
		for i, item := range node.Content {
			if i > 0 {
				data = append(data, ',')
			}
			if data, ok = appendPlain(data, item); !ok {
				return nil, false
			}
		}
		return append(data, ']'), true
	case kyaml.ScalarNode:
		return appendPlainScalar(data, node)
	}
	return nil, false
}

// appendPlainMapping appends the fields of a mapping in the order of their keys, as encoding/json does.
func appendPlainMapping(data []byte, node *kyaml.Node) (appended []byte, ok bool) {
	values := make(map[string]*kyaml.Node, len(node.Content)/2)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key := node.Content[i]
		if _, twice := values[key.Value]; twice || key.Kind != kyaml.ScalarNode || key.Anchor != "" ||
			key.Style&kyaml.TaggedStyle != 0 || !plainText.MatchString(key.Value) || words.MatchString(key.Value) {
			return nil, false
		}
		values[key.Value] = node.Content[i+1]
	}
	data = append(data, '{')
	for i, key := range slices.Sorted(maps.Keys(values)) {
		if i > 0 {
			data = append(data, ',')
		}
		data = append(strconv.AppendQuote(data, key), ':')
		if data, ok = appendPlain(data, values[key]); !ok {
			return nil, false
		}
	}
	return append(data, '}'), true
}

func appendPlainScalar(data []byte, node *kyaml.Node) (appended []byte, ok bool) {
	text := node.Value
	switch {
	case node.Style == kyaml.DoubleQuotedStyle || node.Style == kyaml.SingleQuotedStyle:
		for _, char := range []byte(text) {
			if char < ' ' || char > '~' || char == '<' || char == '>' || char == '&' { // which encoding/json escapes
				return nil, false
			}
		}
		return strconv.AppendQuote(data, text), true
	case node.Style != 0:
		return nil, false
	case plainNumber.MatchString(text), text == "true", text == "false":
		return append(data, text...), true
	case words.MatchString(text):
		return nil, false
	case plainText.MatchString(text), plainQuantity.MatchString(text):
		return strconv.AppendQuote(data, text), true
	}
	return nil, false
}
