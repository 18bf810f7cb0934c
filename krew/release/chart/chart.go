// Package chart generates nstpl's Helm chart from its kustomizations. Nothing is written twice: an object of the chart
// is an object of a kustomization, what a component of kustomize adds depends on a value, and default values are those
// of the manifests.
package chart

import (
	"bytes"
	"embed"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"nstpl.dev/nstpl/krew/release/archive"
)

// Name is the name of the chart and of the folder in its archive.
const Name = "nstpl"

// Chart is a version of the chart.
type Chart struct {
	// Version is the version of the release, such as v1.2.3.
	Version string
	// Images has the image of each workload, by the name of its Deployment.
	Images map[string]Image
	// Manifests is the folder of the kustomizations.
	Manifests string
	License   []byte
}

// Image is an image of a release.
type Image struct {
	Repository string
	// Digest may be empty. Then the tag alone, which is the version, says which image it is.
	Digest string
}

//go:embed files
var files embed.FS

// FileName returns the name that Helm gives to the chart's archive.
func (c Chart) FileName() string { return Name + "-" + c.version() + ".tgz" }

// version returns the version of the chart. Versions of charts do not begin with v.
func (c Chart) version() string { return strings.TrimPrefix(c.Version, "v") }

// Files returns the files of the chart, in a folder with its name. Chart.yaml is the first, as in Helm's archives.
func (c Chart) Files() ([]archive.File, error) {
	source, err := readManifests(c.Manifests)
	if err != nil {
		return nil, err
	}
	objects, err := source.objects()
	if err != nil {
		return nil, err
	}
	settings := []value{imagePullSecrets}
	for _, workload := range workloads {
		parameters, err := c.parameterize(objects, workload)
		if err != nil {
			return nil, err
		}
		settings = append(settings, parameters...)
	}
	settings = append(settings, source.componentValues()...)
	settings = append(settings, labelMonitors(objects)...)
	contents := map[string][]byte{"LICENSE": c.License}
	files, err := templates(objects)
	if err != nil {
		return nil, err
	}
	for file, content := range files {
		contents["templates/"+file] = []byte(content)
	}
	if contents["values.yaml"], err = valuesFile(settings); err != nil {
		return nil, err
	}
	if contents["values.schema.json"], err = schemaFile(settings); err != nil {
		return nil, err
	}
	if err := c.addTexts(contents, settings); err != nil {
		return nil, err
	}
	return sorted(contents), nil
}

// addTexts adds the files that are not generated from manifests: Chart.yaml, the README, and templates of texts.
func (c Chart) addTexts(contents map[string][]byte, settings []value) error {
	table, err := valuesTable(settings)
	if err != nil {
		return err
	}
	// Helm's own templates are in {{ }}.
	parsed, err := template.New("").Delims("[[", "]]").ParseFS(files, "files/*")
	if err != nil {
		return err
	}
	for source, target := range map[string]string{
		"Chart.yaml": "Chart.yaml", "README.md": "README.md",
		"NOTES.txt": "templates/NOTES.txt", "helpers.tpl": "templates/_helpers.tpl",
		"validate.yaml": "templates/validate.yaml",
	} {
		var content bytes.Buffer
		if err := parsed.ExecuteTemplate(&content, source, map[string]string{
			"Version": c.version(), "AppVersion": c.Version, "File": c.FileName(), "Values": table,
		}); err != nil {
			return err
		}
		contents[target] = content.Bytes()
	}
	return nil
}

// sorted returns the files of the chart by their names. Chart.yaml is the first: names in lower case come last.
func sorted(contents map[string][]byte) []archive.File {
	var all []archive.File
	for _, name := range slices.Sorted(maps.Keys(contents)) {
		all = append(all, archive.File{Name: path.Join(Name, name), Content: contents[name]})
	}
	return all
}

// templates returns the content of each file with templates. A file has the objects of one file of the manifests.
func templates(objects []*object) (map[string]string, error) {
	contents := map[string]string{}
	for _, o := range objects {
		w := &writer{}
		w.document(o)
		if w.err != nil {
			return nil, fmt.Errorf("write a template of %s: %w", o.file, w.err)
		}
		contents[o.file] += w.String()
	}
	return contents, nil
}

// keeps reports whether Helm keeps an object when it deletes the release. An uninstallation that deletes a
// CustomResourceDefinition would delete all objects of its kind, and that of a namespace everything in it. ConfigMaps
// without data in the manifests have data that the operator or administrators write. Objects of nstpl's kinds are kept
// with their definitions, because Helm could not uninstall a release whose definitions are deleted already.
func (o *object) keeps() bool {
	if version, _ := o.tree["apiVersion"].(string); strings.HasPrefix(version, "policy.nstpl.dev/") {
		return true
	}
	switch o.kind {
	case "CustomResourceDefinition", "Namespace":
		return true
	case "ConfigMap":
		return o.tree["data"] == nil
	}
	return false
}

// keep adds the annotation with which Helm keeps an object.
func (o *object) keep() error {
	err := unstructured.SetNestedField(o.tree, "keep", "metadata", "annotations", "helm.sh/resource-policy")
	if err != nil {
		return fmt.Errorf("%s: %w", o.key, err)
	}
	return nil
}

func toYAML(content any) (string, error) {
	text, err := yaml.Marshal(content)
	return string(text), err
}
