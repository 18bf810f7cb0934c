package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

// Manifest is a document that was parsed.
type Manifest struct {
	Lines
	// JSON is the document as JSON if it is a mapping, and nil otherwise.
	JSON []byte
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
func (d Document) Parse() (Manifest, error) {
	if d.FirstLine() == nil {
		return Manifest{Lines: d.Start()}, nil
	}
	node, err := parseNode(d.Content)
	isObject := d.JSON && d.Content[0] == '{'
	switch {
	case isObject && (err != nil || node == nil): // some JSON is not valid YAML
		node = &kyaml.Node{Kind: kyaml.MappingNode, Line: 1}
	case err != nil:
		return Manifest{}, d.syntaxError(err)
	case node == nil:
		return Manifest{Lines: d.Start()}, nil
	}
	parsed := Manifest{Lines: Lines{node, d.offset}}
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

// parseNode returns the root node of a document, or nil if the document is empty.
func parseNode(content []byte) (*kyaml.Node, error) {
	var first, more kyaml.Node
	decoder := kyaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return nil, err
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, fmt.Errorf("line %d: unexpected content after the document", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	if len(first.Content) != 1 {
		return nil, nil
	}
	node := first.Content[0]
	limit := max(maxExpanded, 2*len(content))
	if expandedSize(node, limit, map[*kyaml.Node]int{}) >= limit {
		return nil, errors.New("it is too large when its aliases are expanded")
	}
	return node, nil
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

// expandedSize returns about how many bytes a node has when its aliases are expanded, and limit if it has more or
// contains itself.
func expandedSize(node *kyaml.Node, limit int, sizes map[*kyaml.Node]int) int {
	if size, known := sizes[node]; known {
		return size
	}
	sizes[node] = limit
	size := 1 + len(node.Value)
	if node.Alias != nil {
		size += expandedSize(node.Alias, limit, sizes)
	}
	for _, inside := range node.Content {
		if size >= limit {
			break
		}
		size += expandedSize(inside, limit, sizes)
	}
	sizes[node] = min(size, limit)
	return sizes[node]
}
