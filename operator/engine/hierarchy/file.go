package hierarchy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
	"sigs.k8s.io/yaml"
)

// maxFile bounds the manifests that are read. The API server takes no object of more.
const maxFile = 1 << 20

// sniffed is how much of a file is looked at to see whether it is a manifest.
const sniffed = 4096

var manifestNames = []string{".yaml", ".yml", ".json"}

// beginsManifest matches the first line that says something, of a file with another name.
var beginsManifest = regexp.MustCompile(`^(\{|["']?(apiVersion|kind|metadata|items)["']?\s*:)`)

// looksLikeManifest tells whether a file of any name is one.
func looksLikeManifest(content []byte) bool {
	return beginsManifest.Match(firstLine(content)) && bytes.Contains(content, []byte("apiVersion")) && bytes.Contains(content, []byte("kind"))
}

// file returns the objects of a file, none if it is no manifest. What is broken is a violation.
func (l *loader) file(at, shown string) ([]Object, error) {
	content, size, err := l.read(at)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(manifestNames, strings.ToLower(path.Ext(at))) && !looksLikeManifest(content) {
		return nil, nil
	}
	if size > maxFile {
		l.violate("parse", shown, 0, fmt.Sprintf("it has %d bytes, and a manifest can have %d", size, maxFile), "make more than one file of it")
		return nil, nil
	}
	var objects []Object
	for _, document := range split(content) {
		objects = append(objects, l.document(shown, document)...)
	}
	return objects, nil
}

// read returns a file's content, or its beginning if it is larger than a manifest can be.
func (l *loader) read(at string) ([]byte, int64, error) {
	file, err := l.files.Open(at)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return nil, 0, &fs.PathError{Op: "read", Path: at, Err: errors.New("it changed while it was read")}
	}
	if info.Size() > maxFile {
		content, err := io.ReadAll(io.LimitReader(file, sniffed))
		return content, info.Size(), err
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	return content, int64(len(content)), err
}

// firstLine returns the first line that is neither empty nor a comment nor the beginning of a document.
func firstLine(content []byte) []byte {
	for line := range bytes.Lines(content) {
		line = bytes.TrimSpace(bytes.TrimPrefix(line, []byte("\ufeff")))
		if len(line) > 0 && line[0] != '#' && line[0] != '%' && !bytes.HasPrefix(line, []byte("---")) {
			return line
		}
	}
	return nil
}

// document is a part of a file, and how many lines come before it.
type document struct {
	content []byte
	offset  int
}

// split takes the documents of a file apart.
func split(content []byte) []document {
	content = bytes.TrimPrefix(content, []byte("\ufeff"))
	documents := []document{{}}
	number := 0
	for line := range bytes.Lines(content) {
		last := &documents[len(documents)-1]
		if text := strings.TrimRight(string(line), "\r\n \t"); text == "---" || strings.HasPrefix(text, "--- ") {
			// What follows on the line belongs to the document.
			documents = append(documents, document{content: []byte(text[3:] + "\n"), offset: number})
		} else {
			last.content = append(last.content, line...)
		}
		number++
	}
	return documents
}

// lines tell where in a file the fields of an object are.
type lines struct {
	node   *kyaml.Node
	offset int
}

// of returns the line of a field, or of the deepest one on the way to it.
func (l lines) of(path ...string) int {
	node, line := l.node, l.node.Line
	for _, step := range path {
		next := (*kyaml.Node)(nil)
		for i := 0; node.Kind == kyaml.MappingNode && i+1 < len(node.Content); i += 2 {
			if node.Content[i].Value == step {
				next, line = node.Content[i+1], node.Content[i].Line
			}
		}
		if next == nil {
			break
		}
		node = next
	}
	return line + l.offset
}

// document returns the objects of a document, or of the list that it is.
func (l *loader) document(shown string, d document) []Object {
	if len(firstLine(d.content)) == 0 {
		return nil
	}
	var node kyaml.Node
	if err := kyaml.Unmarshal(d.content, &node); err != nil {
		l.broken(shown, d.offset, err)
		return nil
	}
	if node.Kind != kyaml.DocumentNode || len(node.Content) != 1 || node.Content[0].Kind != kyaml.MappingNode {
		return nil // a text, or a list of something: no manifest
	}
	data, err := yaml.YAMLToJSONStrict(d.content)
	if err != nil {
		l.broken(shown, d.offset, err)
		return nil
	}
	return l.decode(shown, lines{node.Content[0], d.offset}, data)
}

var saysLine = regexp.MustCompile(`line (\d+)`)

// broken says what a parser found, and where in the file.
func (l *loader) broken(shown string, offset int, err error) {
	text, line := err.Error(), offset+1
	if match := saysLine.FindStringSubmatch(text); match != nil {
		if number, err := strconv.Atoi(match[1]); err == nil {
			line = offset + number
		}
	}
	text = strings.TrimPrefix(strings.TrimPrefix(text, "error converting YAML to JSON: "), "yaml: ")
	text = saysLine.ReplaceAllStringFunc(text, func(string) string { return fmt.Sprintf("line %d", line) })
	l.violate("parse", shown, line, "it can't be read: "+strings.Join(strings.Fields(text), " "), "mend the YAML or JSON")
}
