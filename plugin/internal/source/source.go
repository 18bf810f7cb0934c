// Package source reads templates, trees of policies and other objects from files.
//
// The package decodes templates as strictly as the API server does, and sets the same defaults. Files can be untrusted,
// as in a pull request. So the package follows no symbolic links, opens no devices and limits how much it reads.
package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Files holds the contents of files with templates.
type Files struct {
	Templates []*v1alpha1.NamespaceTemplate
	// Skipped has the file, kind and name of each document that is not a template: "config.yaml: ConfigMap limits".
	Skipped []string
	// Documents holds every template, every NamespaceInitializationConfiguration, and every invalid document.
	Documents []Document
}

// Document is a document of a file, or an item of a list in a document. Err is nil if the document is valid.
type Document struct {
	File           string
	Data           []byte
	Template       *v1alpha1.NamespaceTemplate
	Initialization *v1alpha1.NamespaceInitializationConfiguration
	Err            error
}

// Read reads templates from files and from the .yaml, .yml and .json files in directories. The path "-" is standard
// input. Each file may contain several documents, and lists. Read returns an error if there is no template, if two
// templates have the same name, or if a file is a symbolic link, a device or too large.
func Read(paths []string, stdin io.Reader) (Files, error) {
	files, err := ReadAll(paths, stdin)
	if err != nil {
		return Files{}, err
	}
	for _, document := range files.Documents {
		if document.Initialization == nil && document.Err != nil {
			return Files{}, fmt.Errorf("%s: %w", document.File, document.Err)
		}
	}
	if len(files.Templates) == 0 {
		return Files{}, fmt.Errorf("no NamespaceTemplate found in %q", paths)
	}
	seen := map[string]bool{}
	for _, template := range files.Templates {
		if seen[template.Name] {
			return Files{}, fmt.Errorf("template %s is declared more than once in the files", template.Name)
		}
		seen[template.Name] = true
	}
	return files, nil
}

// ReadAll is like Read, but returns the error of an invalid document in the document. It also accepts files without
// templates.
func ReadAll(paths []string, stdin io.Reader) (Files, error) {
	in := inputs{}
	for _, path := range paths {
		if err := in.add(path, stdin); err != nil {
			return Files{}, err
		}
	}
	var files Files
	for _, read := range in.read {
		if err := files.decode(read.name, bytes.NewReader(read.content)); err != nil {
			return Files{}, err
		}
	}
	return files, nil
}

func (f *Files) decode(name string, r io.Reader) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: document %d: %w", name, number, err)
		}
		if err := f.document(name, document); err != nil {
			f.Documents = append(f.Documents, Document{File: name, Err: fmt.Errorf("document %d: %w", number, err)})
		}
	}
}

// document decodes a document and adds it, or adds each item of a list.
func (f *Files) document(file string, document []byte) error {
	var head struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`
		Items             []any `json:"items"`
	}
	if err := yaml.Unmarshal(document, &head); err != nil {
		return err
	}
	switch {
	case head.TypeMeta == metav1.TypeMeta{} && len(bytes.TrimSpace(withoutComments(document))) == 0:
		return nil
	case head.Items != nil:
		for _, item := range head.Items {
			data, err := yaml.Marshal(item)
			if err != nil {
				return err
			}
			if err := f.document(file, data); err != nil {
				return err
			}
		}
		return nil
	case head.GroupVersionKind().Group != v1alpha1.GroupVersion.Group || head.Kind != "NamespaceTemplate":
		if head.APIVersion == v1alpha1.GroupVersion.String() && head.Kind == "NamespaceInitializationConfiguration" {
			configuration, err := decodeInitialization(document)
			f.Documents = append(f.Documents,
				Document{File: file, Data: document, Initialization: configuration, Err: err})
		}
		f.Skipped = append(f.Skipped, fmt.Sprintf("%s: %s %s", file, head.Kind, head.Name))
		return nil
	case head.APIVersion != v1alpha1.GroupVersion.String():
		return fmt.Errorf("template %s: apiVersion is %s: change it to %s", head.Name, head.APIVersion,
			v1alpha1.GroupVersion)
	}
	template, err := decodeTemplate(document)
	if err != nil {
		return fmt.Errorf("template %s: %w", head.Name, err)
	}
	f.Templates = append(f.Templates, template)
	f.Documents = append(f.Documents, Document{File: file, Data: document, Template: template})
	return nil
}

func decodeTemplate(document []byte) (*v1alpha1.NamespaceTemplate, error) {
	template := &v1alpha1.NamespaceTemplate{}
	if err := decodeStrictly(document, template); err != nil {
		return nil, err
	}
	return template, complete(template)
}

func decodeInitialization(document []byte) (*v1alpha1.NamespaceInitializationConfiguration, error) {
	configuration := &v1alpha1.NamespaceInitializationConfiguration{}
	if err := decodeStrictly(document, configuration); err != nil {
		return configuration, err
	}
	return configuration, checkInitialization(configuration)
}

func decodeStrictly(document []byte, into any) error {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return err
	}
	unknown, err := json.UnmarshalStrict(data, into)
	return errors.Join(append(unknown, err)...)
}

// withoutComments returns a document without its comment lines and separators.
func withoutComments(document []byte) []byte {
	var rest []byte
	for line := range bytes.Lines(document) {
		if trimmed := bytes.TrimSpace(line); !bytes.HasPrefix(trimmed, []byte("#")) &&
			!bytes.Equal(trimmed, []byte("---")) {
			rest = append(rest, line...)
		}
	}
	return rest
}
