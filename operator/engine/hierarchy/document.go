package hierarchy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

// document returns the objects of a document, or of the list that it is.
func (l *loader) document(shown string, d document) []Object {
	if firstLine(d.content) == nil {
		return nil
	}
	node, data, err := d.parse()
	switch {
	case err != nil:
		return l.broken(shown, d, err)
	case node == nil:
		return nil
	case node.Kind == kyaml.SequenceNode:
		for _, item := range node.Content {
			if version, _ := into(item, "apiVersion"); version != nil {
				l.violate("schema", shown, item.Line+d.offset, "it is a list of manifests, which is no manifest",
					"write kind: List with items, or documents")
				break
			}
		}
		return nil
	case node.Kind != kyaml.MappingNode:
		return nil // a text: no manifest
	}
	return l.decode(shown, lines{node, d.offset}, data, list{})
}

// parse returns a document and, if it is a mapping, the same as JSON. What is JSON already need be no YAML.
func (d document) parse() (*kyaml.Node, []byte, error) {
	node, data, err := parse(d.content)
	if !d.json {
		return node, data, err
	}
	if _, twice := errors.AsType[*twiceError](err); twice {
		return nil, nil, err
	}
	if node == nil {
		node = &kyaml.Node{Kind: kyaml.MappingNode, Line: 1}
	}
	return node, d.content, nil
}

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
		return nil, nil, fmt.Errorf("line %d: something follows the document", more.Line)
	} else if !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	if len(first.Content) != 1 {
		return nil, nil, nil
	}
	node := first.Content[0]
	if expanded(node, map[*kyaml.Node]int{}) >= endless {
		return nil, nil, errors.New("with its aliases written out it is larger than a manifest can be")
	}
	if node.Kind != kyaml.MappingNode {
		return node, nil, nil
	}
	if err := unique(node); err != nil {
		return nil, nil, err
	}
	data, err := yaml.YAMLToJSON(content)
	return node, data, err
}

// twiceError is a key that a mapping has twice.
type twiceError struct {
	key         string
	first, then int
}

func (e *twiceError) Error() string {
	return fmt.Sprintf("line %d: the key %q is there already, in line %d", e.then, e.key, e.first)
}

// unique refuses keys that are twice in a mapping. Those that take the place of merged ones are not, which kubectl does
// not tell apart.
func unique(node *kyaml.Node) error {
	keys := map[string]int{}
	for i, inside := range node.Content {
		if node.Kind == kyaml.MappingNode && i%2 == 0 && inside.Kind == kyaml.ScalarNode &&
			inside.ShortTag() != "!!merge" {
			key := inside.ShortTag() + inside.Value
			if line, twice := keys[key]; twice {
				return &twiceError{inside.Value, line, inside.Line}
			}
			keys[key] = inside.Line
		}
		if err := unique(inside); err != nil {
			return err
		}
	}
	return nil
}

// endless is more bytes than a manifest has with its aliases written out.
const endless = 2 * maxFile

// expanded returns about how many bytes a node has with its aliases written out, at most endless. An alias of what it
// is in is.
func expanded(node *kyaml.Node, sizes map[*kyaml.Node]int) int {
	if size, known := sizes[node]; known {
		return size
	}
	sizes[node] = endless
	size := 1 + len(node.Value)
	if node.Alias != nil {
		size += expanded(node.Alias, sizes)
	}
	for _, inside := range node.Content {
		if size >= endless {
			break
		}
		size += expanded(inside, sizes)
	}
	sizes[node] = min(size, endless)
	return sizes[node]
}

var (
	saysLine = regexp.MustCompile(`line (\d+)`)
	// countsFromZero matches what the parser says of lines that it counts from 0. What the scanner says is counted from
	// 1.
	countsFromZero = regexp.MustCompile(`did not find expected (node content|key|'-' indicator|',' or|<)`)
	saysAnchor     = regexp.MustCompile(`unknown anchor '([^']*)'`)
	saysNamespace  = regexp.MustCompile(`\bkind["']?\s*:\s*["']?Namespace(["'\s,}]|$)`)
)

// broken says what a parser found, and where in the file. What seems to be a Namespace is taken for one, so that its
// directory is not taken for a policyspace.
func (l *loader) broken(shown string, d document, err error) []Object {
	text := err.Error()
	from := d.offset
	if countsFromZero.MatchString(text) {
		from++
	}
	last := d.offset + 1 + bytes.Count(bytes.TrimRight(d.content, " \t\n"), []byte("\n"))
	line := d.offset + lineWithout(d.content, text)
	for i, match := range saysLine.FindAllStringSubmatch(text, -1) {
		if number, err := strconv.Atoi(match[1]); i == 0 && err == nil {
			line = min(from+number, last) // the end of a file is on no line
		}
	}
	if strings.Contains(text, "tab character that violates indentation") {
		line += tabbed(d.content, line-d.offset)
	}
	text = saysLine.ReplaceAllStringFunc(text, func(said string) string {
		number, _ := strconv.Atoi(strings.TrimPrefix(said, "line "))
		return fmt.Sprintf("line %d", min(from+number, last))
	})
	for _, prefix := range []string{"error converting YAML to JSON: ", "yaml: ", "unmarshal errors:"} {
		text = strings.TrimPrefix(text, prefix)
	}
	l.violate("parse", shown, line, "it can't be read: "+strings.Join(strings.Fields(text), " "),
		"mend the YAML or JSON")
	if !saysNamespace.Match(d.content) {
		return nil
	}
	return []Object{{
		Path: shown, Line: d.offset + 1, kind: kindNamespace, lines: lines{&kyaml.Node{Line: 1}, d.offset},
	}}
}

// lineWithout finds the line of an error that says none.
func lineWithout(content []byte, text string) int {
	at := 0
	if match := saysAnchor.FindStringSubmatch(text); match != nil {
		at = bytes.Index(content, []byte("*"+match[1]))
	} else {
		for at < len(content) {
			char, size := utf8.DecodeRune(content[at:])
			if char == utf8.RuneError && size == 1 || char < ' ' && char != '\t' && char != '\n' || char >= 0x7f &&
				char < 0xa0 && char != 0x85 {
				break
			}
			at += size
		}
	}
	if at < 0 || at == len(content) {
		return 1
	}
	return 1 + bytes.Count(content[:at], []byte("\n"))
}

// tabbed returns how many lines after a line the first one is that a tab indents.
func tabbed(content []byte, line int) int {
	for i, text := range bytes.Split(content, []byte("\n")) {
		indent := text[:len(text)-len(bytes.TrimLeft(text, " \t"))]
		if i+1 >= line && bytes.Contains(indent, []byte("\t")) {
			return i + 1 - line
		}
	}
	return 0
}
