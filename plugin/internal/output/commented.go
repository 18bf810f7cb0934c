package output

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

// Comments are lines of text about the fields of an object, by the paths of the fields, which FieldPath and ItemPath
// return. The path "" is that of the object as a whole.
type Comments map[string][]string

// Add adds a line about a field.
func (c Comments) Add(path, format string, args ...any) {
	c[path] = append(c[path], fmt.Sprintf(format, args...))
}

// FieldPath returns the path of a field of an object.
func FieldPath(of, name string) string { return of + "." + name }

// ItemPath returns the path of an item of a list.
func ItemPath(of string, i int) string { return fmt.Sprintf("%s[%d]", of, i) }

// CommentedYAML returns an object as a YAML document with comments. Like YAML, it escapes what a parser or a terminal
// could misread, so no comment can end before its line does. If the object itself needs escape sequences, it is written
// as JSON, and all comments stand before it.
func CommentedYAML(object map[string]any, comments Comments) ([]byte, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, err
	}
	var want, got any
	if err := utiljson.Unmarshal(data, &want); err != nil {
		return nil, err
	}
	document, err := commented(data, comments)
	if err == nil && isPrintable(string(document)) && utilyaml.Unmarshal(document, &got) == nil &&
		reflect.DeepEqual(got, want) {
		return document, nil
	}
	var head bytes.Buffer
	for _, path := range slices.Sorted(maps.Keys(comments)) {
		head.WriteString(comment(comments[path]) + "\n")
	}
	document, err = escapedJSON(data)
	return append(head.Bytes(), document...), err
}

// commented returns an object, as JSON, as a YAML document with comments.
func commented(data []byte, comments Comments) ([]byte, error) {
	document, err := yaml.JSONToYAML(data)
	if err != nil {
		return nil, err
	}
	parsed, err := kyaml.Parse(string(document))
	if err != nil {
		return nil, err
	}
	root := parsed.YNode()
	root.HeadComment = comment(comments[""])
	comments.addTo(root, "")
	return kyaml.Marshal(root)
}

// addTo adds comments to the fields below a node of a YAML document.
func (c Comments) addTo(node *kyaml.Node, path string) {
	for i, child := range node.Content {
		switch at := ItemPath(path, i); {
		case node.Kind == kyaml.SequenceNode:
			child.HeadComment = comment(c[at])
			c.addTo(child, at)
		case i%2 == 0: // the name of a field, before its value
			at = FieldPath(path, child.Value)
			child.HeadComment = comment(c[at])
			c.addTo(node.Content[i+1], at)
		}
	}
}

// maxComment is the number of characters in a line of a comment, at most.
const maxComment = 100

// comment returns lines as a YAML comment. Each line becomes one or several that begin with "#". Lines that begin with
// a space, such as commands, are not wrapped.
func comment(lines []string) string {
	var text []string
	for _, line := range lines {
		line = Escape(strings.ToValidUTF8(line, "\ufffd"))
		for !strings.HasPrefix(line, " ") && len(line) > maxComment {
			end := strings.LastIndexByte(line[:maxComment], ' ')
			if end <= 0 {
				break
			}
			text = append(text, "# "+line[:end])
			line = line[end+1:]
		}
		text = append(text, "# "+line)
	}
	return strings.Join(text, "\n")
}
