package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

// Manifest is a document that was parsed.
type Manifest struct {
	Lines
	// JSON is the document as JSON if it is a mapping, and nil otherwise.
	JSON []byte
	// Values is how many scalars, lists and mappings the document has, with its aliases expanded. The name of a field
	// is a scalar.
	Values int
	// Duplicates are keys that a mapping has more than once. JSON has the last value of each.
	Duplicates []Duplicate
}

// Duplicate is a key that a mapping already has. Line and First are the lines of both in the file.
type Duplicate struct {
	Key         string
	Line, First int
}

func (d Duplicate) String() string {
	return fmt.Sprintf("duplicate key %q, which is also in line %d", d.Key, d.First)
}

// Parse parses a document. The error is a SyntaxError.
func (d Document) Parse() (Manifest, error) { return d.ParseWithin(math.MaxInt / 2) }

// ParseWithin is Parse for a document with at most so many Values. A parser needs some 250 bytes for each, so a
// document is not parsed if it has punctuation for more than twice as many. Lists and mappings have punctuation for at
// most about twice their values, and prose has little of it.
func (d Document) ParseWithin(allowed int) (Manifest, error) {
	if d.FirstLine() == nil {
		return Manifest{Lines: d.Start()}, nil
	}
	if nodes := d.maxNodes(); nodes > 2*allowed {
		return Manifest{}, d.tooLarge("its commas, colons and hyphens are those of up to %d values", nodes, allowed)
	}
	node, values, err := parseNode(d.Content)
	isObject := d.JSON && d.Content[0] == '{'
	switch {
	case isObject && (err != nil || node == nil): // some JSON is not valid YAML
		node, values = &kyaml.Node{Kind: kyaml.MappingNode, Line: 1}, countJSON(d.Content)
	case err != nil:
		return Manifest{}, d.syntaxError(err)
	case node == nil:
		return Manifest{Lines: d.Start()}, nil
	}
	if values > allowed {
		return Manifest{}, d.tooLarge("it has %d values", values, allowed)
	}
	parsed := Manifest{Lines: Lines{node, d.offset}, Values: values}
	switch {
	case isObject:
		parsed.JSON = d.Content
	case node.Kind != kyaml.MappingNode:
		return parsed, nil
	default:
		var plain bool
		if parsed.JSON, plain = plainJSON(node, d.Content); plain {
			break
		}
		if parsed.JSON, err = yaml.YAMLToJSON(d.Content); err != nil {
			return Manifest{}, d.syntaxError(err)
		}
	}
	parsed.Duplicates = duplicates(node, d.offset, nil)
	return parsed, nil
}

// Empty reports whether the document has no value.
func (m Manifest) Empty() bool { return m.node == nil || m.node.ShortTag() == "!!null" }

// Sequence returns the lines of the items if the document is a YAML list.
func (m Manifest) Sequence() []Lines {
	if m.node == nil || m.node.Kind != kyaml.SequenceNode {
		return nil
	}
	items := make([]Lines, len(m.node.Content))
	for i, item := range m.node.Content {
		items[i] = Lines{item, m.offset}
	}
	return items
}

// parseNode returns the root node of a document, or nil if the document is empty, and how many values it has.
func parseNode(content []byte) (node *kyaml.Node, values int, err error) {
	var first, more kyaml.Node
	decoder := kyaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return nil, 0, err
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, 0, fmt.Errorf("line %d: unexpected content after the document", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, 0, err
	}
	if len(first.Content) != 1 {
		return nil, 0, nil
	}
	limit := max(maxExpanded, 2*len(content))
	size := expand(first.Content[0], limit, map[*kyaml.Node]expansion{})
	if size.bytes >= limit {
		return nil, 0, errors.New("it is too large when its aliases are expanded")
	}
	return first.Content[0], size.values, nil
}

// countJSON returns how many values a JSON document has.
func countJSON(content []byte) (values int) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	for {
		token, err := decoder.Token()
		switch {
		case err != nil:
			return values
		case token != json.Delim('}') && token != json.Delim(']'):
			values++
		}
	}
}

// duplicates appends each key that a mapping has more than once, in the order of the document. A key that overrides a
// merged key is not a duplicate, although kubectl rejects it.
func duplicates(node *kyaml.Node, offset int, found []Duplicate) []Duplicate {
	const reported = -1
	var keys map[string]int
	if node.Kind == kyaml.MappingNode {
		keys = make(map[string]int, len(node.Content)/2)
	}
	for i, inside := range node.Content {
		if node.Kind == kyaml.MappingNode && i%2 == 0 && inside.Kind == kyaml.ScalarNode &&
			!isMerge(inside) {
			key := inside.ShortTag() + inside.Value
			switch line, twice := keys[key]; {
			case !twice:
				keys[key] = inside.Line
			case line != reported:
				found = append(found, Duplicate{inside.Value, inside.Line + offset, line + offset})
				keys[key] = reported
			}
		}
		found = duplicates(inside, offset, found)
	}
	return found
}

// maxExpanded is how many bytes a document may have when its aliases are expanded. A document that is larger than that
// may become twice as large.
const maxExpanded = 2 << 20

// expansion is the size of a node when its aliases are expanded, in about so many bytes.
type expansion struct{ bytes, values int }

// expand returns the size of a node. Its bytes are the limit if the node has more or contains itself.
func expand(node *kyaml.Node, limit int, known map[*kyaml.Node]expansion) expansion {
	if size, isKnown := known[node]; isKnown {
		return size
	}
	known[node] = expansion{bytes: limit}
	size := expansion{1 + len(node.Value), 1}
	add := func(inside *kyaml.Node) {
		one := expand(inside, limit, known)
		size.bytes, size.values = size.bytes+one.bytes, size.values+one.values
	}
	if node.Alias != nil {
		size.values = 0
		add(node.Alias)
	}
	for _, inside := range node.Content {
		if size.bytes >= limit {
			break
		}
		add(inside)
	}
	size.bytes = min(size.bytes, limit)
	known[node] = size
	return size
}
