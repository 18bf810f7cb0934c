package hierarchy

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// maxFile bounds the manifests that are read. The API server takes no object of more.
const maxFile = 1 << 20

// sniffed is how much of a file is looked at to see whether it is a manifest.
const sniffed = 4096

var manifestNames = []string{".yaml", ".yml", ".json"}

func hasManifestName(name string) bool {
	return slices.Contains(manifestNames, strings.ToLower(path.Ext(name)))
}

// A manifest by another name says its apiVersion and kind at the beginning of lines or in braces.
var (
	beginsManifest = regexp.MustCompile(`^(\{|["']?(apiVersion|kind|metadata|items)["']?\s*:)`)
	aField         = regexp.MustCompile(`^["']?[A-Za-z][\w.-]*["']?\s*:(\s|$)`)
	saysVersion    = regexp.MustCompile(`(?m)(^|[{,]\s*)["']?apiVersion["']?\s*:`)
	saysKind       = regexp.MustCompile(`(?m)(^|[{,]\s*)["']?kind["']?\s*:`)
)

// looksLikeManifest tells whether a file of any name is one, by the first document in it. A text that shows a manifest
// is none.
func looksLikeManifest(content []byte) bool {
	for _, document := range split(content) {
		if line := firstLine(document.content); line != nil {
			return saysVersion.Match(document.content) && saysKind.Match(document.content) &&
				(beginsManifest.Match(line) || document.hasFieldsOnly())
		}
	}
	return false
}

// hasFieldsOnly tells whether all that is not indented, down to apiVersion and kind, is fields and their lists.
func (d document) hasFieldsOnly() bool {
	version, kind := false, false
	for line := range bytes.Lines(d.content) {
		switch {
		case len(bytes.TrimSpace(line)) == 0, bytes.ContainsAny(line[:1], " \t#%-]}"):
			continue
		case !aField.Match(line):
			return false
		}
		version, kind = version || saysVersion.Match(line), kind || saysKind.Match(line)
		if version && kind {
			return true
		}
	}
	return false
}

// file returns the objects of a file, none if it is no manifest. What is broken is a violation.
func (l *loader) file(at, shown string) ([]Object, error) {
	content, size, err := l.read(at)
	if err != nil {
		return nil, err
	}
	content = readable(content)
	// Names that begin with a dot are those of tools' settings, most of which are YAML too.
	named := hasManifestName(at) && !strings.HasPrefix(path.Base(at), ".")
	if !named && !looksLikeManifest(content) {
		return nil, nil
	}
	if size > maxFile {
		l.violate("parse", shown, 0, fmt.Sprintf("it has %d bytes, and a manifest can have %d", size, maxFile),
			"make more than one file of it")
		return nil, nil
	}
	var objects []Object
	for _, document := range split(content) {
		for _, value := range document.values() {
			objects = append(objects, l.document(shown, value)...)
		}
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

// readable returns a text as UTF-8 with lines that end in one way, whatever editor wrote it.
func readable(content []byte) []byte {
	// Without a mark at its beginning it stays as it is.
	if decoded, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), content); err == nil {
		content = decoded
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
}

// firstLine returns the first line that is neither empty nor a comment nor a directive, or nil.
func firstLine(content []byte) []byte {
	for line := range bytes.Lines(content) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return line
		}
	}
	return nil
}

// document is a part of a file, and how many lines come before it.
type document struct {
	content []byte
	offset  int
	// json tells that it is an object in JSON.
	json bool
}

// split takes the documents of a file apart.
func split(content []byte) []document {
	documents := []document{{}}
	number := 0
	for line := range bytes.Lines(content) {
		last := &documents[len(documents)-1]
		if marks(line) {
			// What follows on the line belongs to the document.
			documents = append(documents, document{content: line[3:], offset: number})
		} else {
			last.content = append(last.content, line...)
		}
		number++
	}
	return documents
}

// marks tells whether a line begins a document, or ends one.
func marks(line []byte) bool {
	for _, marker := range []string{"---", "..."} {
		if rest, found := bytes.CutPrefix(line, []byte(marker)); found &&
			(len(rest) == 0 || bytes.ContainsAny(rest[:1], " \t\n")) {
			return true
		}
	}
	return false
}

// values takes apart what is JSON, of which one text may follow another.
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
