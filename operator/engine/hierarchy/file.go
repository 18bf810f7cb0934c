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
	"strings"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"
)

// maxFileSize is the size of a manifest in bytes at most. The API server accepts no larger object.
const maxFileSize = 1 << 20

// sniffedSize is how many bytes of a larger file are read to find out whether it is a manifest.
const sniffedSize = 4096

var manifestNames = []string{".yaml", ".yml", ".json"}

func hasManifestName(name string) bool {
	return slices.Contains(manifestNames, strings.ToLower(path.Ext(name)))
}

// A file whose name has another extension is a manifest if apiVersion and kind are at the beginning of lines or in
// braces.
var (
	beginsManifest  = regexp.MustCompile(`^(\{|["']?(apiVersion|kind|metadata|items)["']?\s*:)`)
	anyField        = regexp.MustCompile(`^["']?[A-Za-z][\w.-]*["']?\s*:(\s|$)`)
	apiVersionField = regexp.MustCompile(`(?m)(^|[{,]\s*)["']?apiVersion["']?\s*:`)
	kindField       = regexp.MustCompile(`(?m)(^|[{,]\s*)["']?kind["']?\s*:`)
)

// looksLikeManifest reports whether the first document of a file is a manifest. A text that quotes a manifest is not.
func looksLikeManifest(content []byte) bool {
	for _, document := range split(content) {
		if line := firstLine(document.content); line != nil {
			return apiVersionField.Match(document.content) && kindField.Match(document.content) &&
				(beginsManifest.Match(line) || document.hasFieldsOnly())
		}
	}
	return false
}

// hasFieldsOnly reports whether all lines up to apiVersion and kind that are not indented are fields or list items.
func (d document) hasFieldsOnly() bool {
	version, kind := false, false
	for line := range bytes.Lines(d.content) {
		switch {
		case len(bytes.TrimSpace(line)) == 0, bytes.ContainsAny(line[:1], " \t#%-]}"):
			continue
		case !anyField.Match(line):
			return false
		}
		version, kind = version || apiVersionField.Match(line), kind || kindField.Match(line)
		if version && kind {
			return true
		}
	}
	return false
}

// file returns the objects of a file, or none if the file is not a manifest. It reports invalid manifests as
// violations.
func (l *loader) file(at, shown string) ([]Object, error) {
	content, size, err := l.read(at)
	if err != nil {
		return nil, err
	}
	content = normalize(content)
	// Files whose names begin with a dot are usually settings of tools, many of them in YAML.
	named := hasManifestName(at) && !strings.HasPrefix(path.Base(at), ".")
	if !named && !looksLikeManifest(content) {
		return nil, nil
	}
	if size > maxFileSize {
		l.violate("parse", shown, 0, fmt.Sprintf("it has %d bytes, more than the allowed %d", size, maxFileSize),
			"split it into several files")
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

// read returns the content and the size of a file. If the file is too large for a manifest, it returns only the
// beginning of the content.
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
		return nil, 0, &fs.PathError{Op: "read", Path: at, Err: errors.New("not a regular file any more")}
	}
	if info.Size() > maxFileSize {
		content, err := io.ReadAll(io.LimitReader(file, sniffedSize))
		return content, info.Size(), err
	}
	content, err := io.ReadAll(io.LimitReader(file, maxFileSize+1))
	return content, int64(len(content)), err
}

// normalize returns a text as UTF-8 with lines that end in \n, whatever its encoding and line ends are.
func normalize(content []byte) []byte {
	// A text without a byte order mark is kept as it is.
	if decoded, _, err := transform.Bytes(unicode.BOMOverride(transform.Nop), content); err == nil {
		content = decoded
	}
	return bytes.ReplaceAll(bytes.ReplaceAll(content, []byte("\r\n"), []byte("\n")), []byte("\r"), []byte("\n"))
}
