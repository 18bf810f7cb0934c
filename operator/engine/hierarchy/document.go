package hierarchy

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

// document is one document of a file. offset is the number of lines before it.
type document struct {
	content []byte
	offset  int
	// json reports whether it is a JSON object.
	json bool
}

// split returns the documents of a file.
func split(content []byte) []document {
	documents := []document{{}}
	number := 0
	for line := range bytes.Lines(content) {
		last := &documents[len(documents)-1]
		if isMarker(line) {
			// The rest of the line belongs to the document.
			documents = append(documents, document{content: line[3:], offset: number})
		} else {
			last.content = append(last.content, line...)
		}
		number++
	}
	return documents
}

// isMarker reports whether a line is a marker that begins or ends a document.
func isMarker(line []byte) bool {
	for _, marker := range []string{"---", "..."} {
		if rest, found := bytes.CutPrefix(line, []byte(marker)); found &&
			(len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\n")) {
			return true
		}
	}
	return false
}

// values returns the JSON values of a document, or the document itself if it is not JSON. JSON values may follow one
// another without a marker.
func (d document) values() []document {
	var values []document
	line, counted := d.offset, 0
	decoder := json.NewDecoder(bytes.NewReader(d.content))
	for more := false; ; more = true {
		var value json.RawMessage
		err := decoder.Decode(&value)
		switch {
		case errors.Is(err, io.EOF) && more:
			return values
		case err != nil:
			return []document{d}
		}
		begins := int(decoder.InputOffset()) - len(value)
		line += bytes.Count(d.content[counted:begins], []byte("\n"))
		counted = begins
		if bytes.Contains(value, []byte("apiVersion")) || bytes.Contains(value, []byte("kind")) {
			values = append(values, document{value, line, value[0] == '{'})
		}
	}
}

// firstLine returns the first line that is not empty, a comment or a directive, or nil if there is none.
func firstLine(content []byte) []byte {
	for line := range bytes.Lines(content) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return line
		}
	}
	return nil
}

// document returns the objects of a document, which is an object or a list of objects.
func (l *loader) document(shown string, d document) []Object {
	if firstLine(d.content) == nil {
		return nil
	}
	node, data, err := d.parse()
	switch {
	case err != nil:
		return l.syntaxError(shown, d, err)
	case node == nil:
		return nil
	case node.Kind == kyaml.SequenceNode:
		for _, item := range node.Content {
			if version, _ := child(item, "apiVersion"); version != nil {
				l.violate("schema", shown, item.Line+d.offset, "it is a YAML list of manifests",
					"use several documents, or a manifest of kind List")
				break
			}
		}
		return nil
	case node.Kind != kyaml.MappingNode:
		return nil // a text
	}
	return l.decode(shown, lines{node, d.offset}, data, list{})
}

// parse returns a document as a YAML node and, if it is a mapping, also as JSON. Some JSON is not valid YAML.
func (d document) parse() (*kyaml.Node, []byte, error) {
	node, data, err := parse(d.content)
	if !d.json {
		return node, data, err
	}
	if _, twice := errors.AsType[*duplicateKeyError](err); twice {
		return nil, nil, err
	}
	if node == nil {
		node = &kyaml.Node{Kind: kyaml.MappingNode, Line: 1}
	}
	return node, d.content, nil
}
