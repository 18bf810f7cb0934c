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

	"nstpl.dev/nstpl/operator/engine/files"
	"nstpl.dev/nstpl/operator/engine/manifest"
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

// isLikelyManifest reports whether the first document of a file is a manifest. A text that quotes a manifest is not.
func isLikelyManifest(documents []manifest.Document) bool {
	for _, document := range documents {
		if line := document.FirstLine(); line != nil {
			return apiVersionField.Match(document.Content) && kindField.Match(document.Content) &&
				(beginsManifest.Match(line) || hasFieldsOnly(document.Content))
		}
	}
	return false
}

// hasFieldsOnly reports whether all lines up to apiVersion and kind that are not indented are fields or list items.
func hasFieldsOnly(content []byte) bool {
	version, kind := false, false
	for line := range bytes.Lines(content) {
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

// file is a file of a tree, and what was found in it.
type file struct {
	directory *Directory
	shown     string
	content   []byte
	size      int64
	// named reports whether the name of the file is that of a manifest.
	named bool

	objects []Object
}

// open returns a file of a directory with its content.
func (w *walker) open(at, shown string, directory *Directory) (*file, error) {
	content, size, err := w.read(at)
	if err != nil {
		return nil, err
	}
	w.warnOfRefusal(shown, content, size)
	// Files whose names begin with a dot are usually settings of tools, many of them in YAML.
	named := hasManifestName(at) && !strings.HasPrefix(path.Base(at), ".")
	return &file{directory: directory, shown: shown, content: content, size: size, named: named}, nil
}

// warnOfRefusal warns about a file for which nstpl-sync refuses a commit. Other tools can apply the tree.
func (l *loader) warnOfRefusal(shown string, content []byte, size int64) {
	checker := files.NewChecker("", files.DefaultLimits())
	if isUsable, _ := checker.Measure(shown, size); isUsable && files.IsPointer(content, size) {
		checker.RefusePointer(shown)
	}
	refused, _ := errors.AsType[files.RefusedFiles](checker.Err())
	for _, file := range refused {
		l.warn(shown, 0, fmt.Sprintf("nstpl-sync refuses a commit with this file: %s: %s", file.Message, file.Remedy))
	}
}

// parse sets the objects of a file, or none if the file is not a manifest. It reports invalid manifests as violations.
func (f *file) parse(w *walker) {
	content := manifest.Normalize(f.content)
	f.content = nil
	if len(content) > maxShared {
		w.large.Lock()
		defer w.large.Unlock()
	}
	documents := manifest.Split(content)
	if !f.named && !isLikelyManifest(documents) {
		return
	}
	l := w.ofFile()
	if f.size > maxFileSize {
		l.violate("parse", f.shown, 0, fmt.Sprintf("it has %d bytes, more than the allowed %d", f.size, maxFileSize),
			"split it into several files")
		return
	}
	for _, document := range documents {
		if isData(document) {
			continue
		}
		for _, object := range l.document(f.shown, document) {
			f.objects = append(f.objects, object.withoutLines())
		}
	}
}

// isData reports whether a document is JSON that is certainly not a manifest.
func isData(d manifest.Document) bool {
	return d.JSON && !bytes.Contains(d.Content, []byte("apiVersion")) && !bytes.Contains(d.Content, []byte("kind"))
}

// namespaceKind finds the kind of a Namespace in a document that cannot be parsed.
var namespaceKind = regexp.MustCompile(`\bkind["']?\s*:\s*["']?Namespace(["'\s,}]|$)`)

// document returns the objects of a document, which is an object or a list of objects. If a document that cannot be
// parsed seems to be a Namespace, it returns a Namespace, so that the directory is not checked as a policyspace.
func (l *loader) document(shown string, d manifest.Document) []Object {
	parsed, err := d.ParseWithin(maxDocumentValues)
	syntax, isBroken := errors.AsType[*manifest.SyntaxError](err)
	switch {
	case isBroken && syntax.IsTooLarge:
		l.violate("parse", shown, syntax.Line, syntax.Reason, "divide it")
	case isBroken:
		l.violate("parse", shown, syntax.Line, "it cannot be parsed: "+syntax.Reason, "correct the YAML or JSON")
	}
	for _, twice := range parsed.Duplicates {
		l.violate("parse", shown, twice.Line, twice.String(), "remove one of the two")
	}
	switch isSmall := l.size.add(len(parsed.JSON), parsed.Values); {
	case !isSmall:
		return nil
	case (err != nil || len(parsed.Duplicates) > 0) && namespaceKind.Match(d.Content):
		return []Object{{Path: shown, Line: d.Start().Of(), kind: kindNamespace, lines: d.Start()}}
	case err != nil || len(parsed.Duplicates) > 0:
		return nil
	case parsed.JSON != nil:
		return l.decode(shown, parsed.Lines, parsed.JSON, list{})
	}
	for _, item := range parsed.Sequence() {
		if item.Has("apiVersion") {
			l.violate("schema", shown, l.line(item), "it is a YAML list of manifests",
				"use several documents, or a manifest of kind List")
			break
		}
	}
	return nil
}

// read returns the content and the size of a file. If the file is too large for a manifest, it returns only the
// beginning of the content.
func (w *walker) read(at string) ([]byte, int64, error) {
	file, err := w.files.Open(at)
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
