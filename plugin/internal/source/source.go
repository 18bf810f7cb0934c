// Package source reads NamespaceTemplates from files, as strictly as the API server reads them.
package source

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Files are what was read.
type Files struct {
	Templates []*v1alpha1.NamespaceTemplate
	// Skipped names the documents of other kinds.
	Skipped []string
}

// Read reads files, the .yaml, .yml and .json files of folders, and standard input where a path is "-". Each may hold
// several documents, and lists. Finding no template at all is an error, and so is finding one name twice.
func Read(paths []string, stdin io.Reader) (Files, error) {
	var files Files
	for _, path := range paths {
		if err := files.read(path, stdin); err != nil {
			return Files{}, err
		}
	}
	if len(files.Templates) == 0 {
		return Files{}, fmt.Errorf("no NamespaceTemplate in %q", paths)
	}
	seen := map[string]bool{}
	for _, template := range files.Templates {
		if seen[template.Name] {
			return Files{}, fmt.Errorf("template %s is in the files twice", template.Name)
		}
		seen[template.Name] = true
	}
	return files, nil
}

func (f *Files) read(path string, stdin io.Reader) error {
	if path == "-" {
		return f.decode("standard input", stdin)
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return f.open(path)
	}
	return filepath.WalkDir(path, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
			return err
		}
		return f.open(path)
	})
}

func (f *Files) open(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	return f.decode(path, file)
}

func (f *Files) decode(name string, r io.Reader) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for number := 1; ; number++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = f.document(name, document)
		}
		if err != nil {
			return fmt.Errorf("%s: document %d: %w", name, number, err)
		}
	}
}

// document takes one document in, or each item of a list.
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
		f.Skipped = append(f.Skipped, fmt.Sprintf("%s: %s %s", file, head.Kind, head.Name))
		return nil
	case head.APIVersion != v1alpha1.GroupVersion.String():
		return fmt.Errorf("template %s: apiVersion is %s, not %s", head.Name, head.APIVersion, v1alpha1.GroupVersion)
	}
	template, err := decodeTemplate(document)
	if err != nil {
		return fmt.Errorf("template %s: %w", head.Name, err)
	}
	f.Templates = append(f.Templates, template)
	return nil
}

func decodeTemplate(document []byte) (*v1alpha1.NamespaceTemplate, error) {
	data, err := yaml.YAMLToJSONStrict(document)
	if err != nil {
		return nil, err
	}
	template := &v1alpha1.NamespaceTemplate{}
	unknown, err := json.UnmarshalStrict(data, template)
	if err := errors.Join(append(unknown, err)...); err != nil {
		return nil, err
	}
	return template, complete(template)
}

// withoutComments leaves of a document without fields what makes it more than an empty one.
func withoutComments(document []byte) []byte {
	var rest []byte
	for line := range bytes.Lines(document) {
		if trimmed := bytes.TrimSpace(line); !bytes.HasPrefix(trimmed, []byte("#")) && !bytes.Equal(trimmed, []byte("---")) {
			rest = append(rest, line...)
		}
	}
	return rest
}
