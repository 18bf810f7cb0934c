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
	document, err := kyaml.Marshal(commentedNode(want, "", comments))
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

// commentedNode returns a JSON value as a node of a YAML document.
func commentedNode(value any, path string, comments Comments) *kyaml.Node {
	switch value := value.(type) {
	case map[string]any:
		node := &kyaml.Node{Kind: kyaml.MappingNode, Style: flowIfEmpty(len(value))}
		if path == "" {
			node.HeadComment = comment(comments[path])
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			at := FieldPath(path, name)
			key := stringNode(name)
			key.HeadComment = comment(comments[at])
			node.Content = append(node.Content, key, commentedNode(value[name], at, comments))
		}
		return node
	case []any:
		node := &kyaml.Node{Kind: kyaml.SequenceNode, Style: flowIfEmpty(len(value))}
		for i, item := range value {
			at := ItemPath(path, i)
			of := commentedNode(item, at, comments)
			of.HeadComment = comment(comments[at])
			node.Content = append(node.Content, of)
		}
		return node
	case string:
		return stringNode(value)
	}
	text, _ := json.Marshal(value) // a number, true, false or null
	return &kyaml.Node{Kind: kyaml.ScalarNode, Value: string(text)}
}

func flowIfEmpty(size int) kyaml.Style {
	if size == 0 {
		return kyaml.FlowStyle
	}
	return 0
}

// stringNode returns a string as a node. It is in quotes unless every YAML parser reads it as a string without them:
// yes is a boolean in YAML 1.1.
func stringNode(text string) *kyaml.Node {
	node := &kyaml.Node{Kind: kyaml.ScalarNode, Tag: "!!str", Value: text}
	var got any
	switch {
	case strings.Contains(text, "\n"):
		node.Style = kyaml.LiteralStyle
	case utilyaml.Unmarshal([]byte(text), &got) != nil || got != text:
		node.Style = kyaml.DoubleQuotedStyle
	}
	return node
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
