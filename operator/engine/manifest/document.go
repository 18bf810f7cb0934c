// Package manifest splits files into the documents they contain, parses them, and finds the lines of their fields.
//
// A file contains YAML documents or JSON values, in any Unicode encoding and with any line ends. Split returns the
// documents, and Document.Parse returns one as JSON, together with the Lines of its fields in the file. Files can be
// untrusted: aliases are expanded within a limit. The package reads no files itself.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// Document is one document of a file.
type Document struct {
	Content []byte
	// JSON reports whether the document is a JSON value.
	JSON bool

	// offset is the number of lines before it.
	offset int
}

// Normalize returns a text as UTF-8 with lines that end in \n, whatever its encoding and line ends are.
func Normalize(content []byte) []byte {
	// A text without a byte order mark is kept as it is.
	if decoded, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), content); err == nil {
		content = decoded
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
}

// Split returns the documents of a file that is Normalized. JSON values may follow one another without a marker, and
// each is a document.
func Split(content []byte) []Document {
	var documents []Document
	for _, document := range split(content) {
		documents = append(documents, document.values()...)
	}
	return documents
}

// split returns the documents between markers.
func split(content []byte) []Document {
	documents := []Document{{}}
	number := 0
	for line := range bytes.Lines(content) {
		last := &documents[len(documents)-1]
		if isMarker(line) {
			// The rest of the line belongs to the document.
			documents = append(documents, Document{Content: line[3:], offset: number})
		} else {
			last.Content = append(last.Content, line...)
		}
		number++
	}
	return documents
}

// maxNodes returns a number that is at least that of the values in a document without its aliases. All but the first
// follow one of these characters, and some are missing, such as the key and the value in [:].
func (d Document) maxNodes() int {
	values := 1
	for i, char := range d.Content {
		switch char {
		case ',', ':', '?', '{':
			values += 2
		case '[':
			values++
		case '-':
			if i+1 == len(d.Content) || !isInName(d.Content[i+1]) {
				values++
			}
		}
	}
	return values
}

// isInName reports whether a character after a hyphen is certainly not a space, of which Unicode has many.
func isInName(char byte) bool { return char > ' ' && char < 0x80 }

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

// values returns the JSON values of a document, or the document itself if it is not JSON.
func (d Document) values() []Document {
	var values []Document
	line, counted := d.offset, 0
	decoder := json.NewDecoder(bytes.NewReader(d.Content))
	for more := false; ; more = true {
		var value json.RawMessage
		err := decoder.Decode(&value)
		switch {
		case errors.Is(err, io.EOF) && more:
			return values
		case err != nil:
			return []Document{d}
		}
		begins := int(decoder.InputOffset()) - len(value)
		line += bytes.Count(d.Content[counted:begins], []byte("\n"))
		counted = begins
		values = append(values, Document{Content: value, JSON: true, offset: line})
	}
}

// FirstLine returns the first line that is not empty, a comment or a directive, or nil if there is none.
func (d Document) FirstLine() []byte {
	for line := range bytes.Lines(d.Content) {
		line = bytes.TrimSpace(line)
		if len(line) > 0 && line[0] != '#' && line[0] != '%' {
			return line
		}
	}
	return nil
}

// Start returns the Lines of a document that cannot be parsed: all of its fields are in its first line.
func (d Document) Start() Lines { return Lines{nil, d.offset + 1} }
