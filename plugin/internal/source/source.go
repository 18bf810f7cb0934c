// Package source reads templates, trees of policies and other objects from files.
//
// ReadAll returns the objects in files, with the lines of their fields. Read returns the templates among them: it
// decodes them as strictly as the API server does, and sets the same defaults. Files can be untrusted, as in a pull
// request. So the package follows no symbolic links, opens no devices and limits how much it reads.
package source

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	strictjson "sigs.k8s.io/json"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/manifest"
)

// Files holds what files contain, in the order of the files.
type Files struct {
	Objects  []Object
	Problems []Problem
	// Unread are subdirectories with files that were not read, since Filenames.Recursive is false.
	Unread []string
}

// Object is an object in a file.
type Object struct {
	File  string
	Lines manifest.Lines
	// APIVersion and Kind are both empty if the document is an object, but not of Kubernetes.
	APIVersion, Kind string
	Namespace, Name  string
	// Data is the object as JSON.
	Data []byte
}

// GroupVersionKind returns the kind of an object. It is empty if apiVersion is invalid.
func (o Object) GroupVersionKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(o.APIVersion, o.Kind)
}

// Problem is why a document of a file cannot be read.
type Problem struct {
	File            string
	Line            int
	Message, Remedy string
}

func (p Problem) Error() string {
	return fmt.Sprintf("%s:%d: %s: %s", p.File, p.Line, p.Message, p.Remedy)
}

// Read reads templates. Each file may contain several documents, and lists. Skipped has the file, kind and name of each
// object of another kind, "config.yaml: ConfigMap limits: not a NamespaceTemplate", and each subdirectory that was not
// read. Read returns an error if there is no template, if two templates have the same name, or if a file is a symbolic
// link, a device or too large.
func Read(from Filenames, stdin io.Reader) (found []*v1alpha1.NamespaceTemplate, skipped []string, err error) {
	files, err := ReadAll(from, stdin)
	if err != nil {
		return nil, nil, err
	}
	errs := make([]error, 0, len(files.Problems))
	for _, problem := range files.Problems {
		errs = append(errs, problem)
	}
	skipped = files.Skipped()
	seen := map[string]bool{}
	for _, object := range files.Objects {
		if !object.IsTemplate() {
			skipped = append(skipped,
				fmt.Sprintf("%s: %s %s: not a NamespaceTemplate", object.File, object.Kind, object.Name))
			continue
		}
		template, err := object.Template()
		switch {
		case err != nil:
			errs = append(errs, err)
		case seen[template.Name]:
			errs = append(errs, fmt.Errorf("template %s is declared more than once in the files", template.Name))
		}
		seen[object.Name] = true
		found = append(found, template)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, nil, err
	}
	if len(found) == 0 {
		return nil, skipped, fmt.Errorf("no NamespaceTemplate found in %s", from.String())
	}
	return found, skipped, nil
}

// ReadAll reads the objects in files, of all kinds. It returns an error only if it cannot read a file. The limits are
// those of Read.
func ReadAll(from Filenames, stdin io.Reader) (Files, error) {
	in, err := readInputs(from, stdin)
	if err != nil {
		return Files{}, err
	}
	files := Files{Unread: in.unread}
	for _, read := range in.read {
		for _, document := range manifest.Split(manifest.Normalize(read.content)) {
			files.document(read.name, document)
		}
	}
	return files, nil
}

// Skipped returns a sentence for each subdirectory that was not read.
func (f *Files) Skipped() []string {
	var skipped []string
	for _, dir := range f.Unread {
		skipped = append(skipped, dir+": use -R to read subdirectories")
	}
	return skipped
}

func (f *Files) complain(file string, line int, message, remedy string) {
	f.Problems = append(f.Problems, Problem{file, line, message, remedy})
}

// document adds the objects of a document, or the reasons why it cannot be read.
func (f *Files) document(file string, document manifest.Document) {
	parsed, err := document.Parse()
	if syntax, ok := errors.AsType[*manifest.SyntaxError](err); ok {
		f.complain(file, syntax.Line, "it cannot be parsed: "+syntax.Reason, "correct the YAML or JSON")
		return
	}
	for _, twice := range parsed.Duplicates {
		f.complain(file, twice.Line, twice.String(), "remove one of the two")
	}
	switch {
	case parsed.JSON != nil:
		f.object(Object{File: file, Lines: parsed.Lines, Data: parsed.JSON}, list{})
	case len(parsed.Sequence()) > 0:
		f.complain(file, parsed.Of(), "it is a YAML list, not an object",
			"use several documents, or an object of kind List")
	case document.FirstLine() != nil && !parsed.Empty():
		f.complain(file, parsed.Of(), "it is not an object", "add apiVersion, kind and metadata")
	}
}

// maxLists is how many levels deep lists may be nested.
const maxLists = 16

// list is the list that contains an object: its depth, and the apiVersion and kind of items without their own.
type list struct {
	depth            int
	apiVersion, kind string
}

// object adds an object, or the items of a list.
func (f *Files) object(object Object, in list) {
	var head struct {
		APIVersion any `json:"apiVersion"`
		Kind       any `json:"kind"`
		Metadata   struct {
			Name      any `json:"name"`
			Namespace any `json:"namespace"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	_ = strictjson.UnmarshalCaseSensitivePreserveInts(object.Data, &head) // fields of another type are left empty
	var versionIsText, kindIsText bool
	object.APIVersion, versionIsText = text(head.APIVersion)
	object.Kind, kindIsText = text(head.Kind)
	if head.APIVersion == nil && head.Kind == nil && in.kind != "" {
		object.inherit(in)
	}
	object.Name, _ = text(head.Metadata.Name)
	object.Namespace, _ = text(head.Metadata.Namespace)
	item, isList := strings.CutSuffix(object.Kind, "List")
	switch {
	case !versionIsText:
		f.complain(object.File, object.Lines.Of("apiVersion"), "apiVersion is not a string", "use group/version, or v1")
	case !kindIsText:
		f.complain(object.File, object.Lines.Of("kind"), "kind is not a string", "use the name of a kind")
	case object.APIVersion == "" && object.Kind == "" && in.depth == 0:
		f.Objects = append(f.Objects, object)
	case object.APIVersion == "":
		f.complain(object.File, object.Lines.Of(), "apiVersion is missing", "add it")
	case object.Kind == "":
		f.complain(object.File, object.Lines.Of(), "kind is missing", "add it")
	case !isList || head.Items == nil:
		f.Objects = append(f.Objects, object)
	case in.depth == maxLists:
		f.complain(object.File, object.Lines.Of(), fmt.Sprintf("lists are nested more than %d levels deep", maxLists),
			"use a single list")
	default:
		lines := object.Lines.Items(len(head.Items))
		for i, data := range head.Items {
			f.object(Object{File: object.File, Lines: lines[i], Data: data},
				list{in.depth + 1, object.APIVersion, item})
		}
	}
}

// inherit sets the kind of an item of a list that has none of its own, as kubectl does.
func (o *Object) inherit(in list) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(o.Data, &fields); err != nil || fields == nil {
		return // the item is not an object
	}
	o.APIVersion, o.Kind = in.apiVersion, in.kind
	for field, value := range map[string]string{"apiVersion": o.APIVersion, "kind": o.Kind} {
		if quoted, err := json.Marshal(value); err == nil {
			fields[field] = quoted
		}
	}
	if data, err := json.Marshal(fields); err == nil {
		o.Data = data
	}
}

// text returns a value that should be a string, and whether it is one or missing.
func text(value any) (text string, ok bool) {
	switch value := value.(type) {
	case nil:
		return "", true
	case string:
		return value, true
	default:
		return fmt.Sprint(value), false
	}
}

// IsTemplate reports whether an object is a NamespaceTemplate, of any version.
func (o Object) IsTemplate() bool {
	return o.GroupVersionKind().GroupKind() == schema.GroupKind{
		Group: v1alpha1.GroupVersion.Group, Kind: "NamespaceTemplate",
	}
}

// Template decodes a NamespaceTemplate and sets its defaults. The error joins everything that the API server would
// reject in the template itself.
func (o Object) Template() (*v1alpha1.NamespaceTemplate, error) {
	template := &v1alpha1.NamespaceTemplate{}
	var errs []error
	fail := func(field, format string, args ...any) {
		errs = append(errs, fmt.Errorf("%s:%d: template %s: "+format, append([]any{
			o.File, o.Lines.Of(manifest.SplitField(field)...), cmp.Or(o.Name, "without a name"),
		}, args...)...))
	}
	if o.APIVersion != v1alpha1.GroupVersion.String() {
		fail("apiVersion", "apiVersion is %s: change it to %s", o.APIVersion, v1alpha1.GroupVersion)
		return nil, errs[0]
	}
	mistakes, _ := manifest.Decode(o.Data, template)
	template.Status = v1alpha1.NamespaceTemplateStatus{} // applying the file does not change it
	for _, mistake := range append(mistakes, complete(template)...) {
		fail(mistake.Field, "%s", mistake.Message)
	}
	return template, errors.Join(errs...)
}
