package hierarchy

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

func parse(content []byte) (*kyaml.Node, []byte, error) {
	var first, more kyaml.Node
	decoder := kyaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&first); err != nil {
		if errors.Is(err, io.EOF) {
			err = nil
		}
		return nil, nil, err
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, nil, fmt.Errorf("line %d: unexpected content after the document", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if len(first.Content) != 1 {
		return nil, nil, nil
	}
	node := first.Content[0]
	if expandedSize(node, map[*kyaml.Node]int{}) >= maxExpanded {
		return nil, nil, errors.New("it is too large when its aliases are expanded")
	}
	if node.Kind != kyaml.MappingNode {
		return node, nil, nil
	}
	if err := checkDuplicateKeys(node); err != nil {
		return nil, nil, err
	}
	data, err := yaml.YAMLToJSON(content)
	return node, data, err
}

// duplicateKeyError reports that a mapping has a key twice.
type duplicateKeyError struct {
	key         string
	first, then int
}

func (e *duplicateKeyError) Error() string {
	return fmt.Sprintf("line %d: duplicate key %q, which is also in line %d", e.then, e.key, e.first)
}

// checkDuplicateKeys returns an error if a mapping has a key twice. A key that overrides a merged key is not a
// duplicate, although kubectl rejects it.
func checkDuplicateKeys(node *kyaml.Node) error {
	keys := map[string]int{}
	for i, inside := range node.Content {
		if node.Kind == kyaml.MappingNode && i%2 == 0 && inside.Kind == kyaml.ScalarNode &&
			inside.ShortTag() != "!!merge" {
			key := inside.ShortTag() + inside.Value
			if line, twice := keys[key]; twice {
				return &duplicateKeyError{inside.Value, line, inside.Line}
			}
			keys[key] = inside.Line
		}
		if err := checkDuplicateKeys(inside); err != nil {
			return err
		}
	}
	return nil
}

// maxExpanded is the size of a manifest in bytes at most when its aliases are expanded.
const maxExpanded = 2 * maxFileSize

// expandedSize returns about how many bytes a node has when its aliases are expanded, and maxExpanded if it has more or
// contains itself.
func expandedSize(node *kyaml.Node, sizes map[*kyaml.Node]int) int {
	if size, known := sizes[node]; known {
		return size
	}
	sizes[node] = maxExpanded
	size := 1 + len(node.Value)
	if node.Alias != nil {
		size += expandedSize(node.Alias, sizes)
	}
	for _, inside := range node.Content {
		if size >= maxExpanded {
			break
		}
		size += expandedSize(inside, sizes)
	}
	sizes[node] = min(size, maxExpanded)
	return sizes[node]
}
