// Package manifest renders and checks krew's manifest of the plugin. krew installs plugins by such manifests, and its
// index publishes rules for them.
package manifest

import (
	"bytes"
	_ "embed"
	"fmt"
	"text/template"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Plugin is a Plugin of krew.googlecontainertools.github.com/v1alpha2.
type Plugin struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Spec Spec `json:"spec"`
}

// Spec describes a plugin and its archives.
type Spec struct {
	Version          string     `json:"version"`
	ShortDescription string     `json:"shortDescription"`
	Description      string     `json:"description"`
	Caveats          string     `json:"caveats"`
	Homepage         string     `json:"homepage"`
	Platforms        []Platform `json:"platforms"`
}

// Platform is an archive and a selector of the machines that it is for. Machines have the labels os and arch.
type Platform struct {
	URI      string                `json:"uri"`
	SHA256   string                `json:"sha256"`
	Selector *metav1.LabelSelector `json:"selector"`
	Files    []File                `json:"files"`
	Bin      string                `json:"bin"`
}

// File names a file in the archive and the folder that krew installs it in.
type File struct {
	From string `json:"from"`
	To   string `json:"to"`
}

// Archive is an archive with the plugin for one platform.
type Archive struct {
	// OS and Arch are a GOOS and a GOARCH.
	OS, Arch string
	// URI is the URL that the archive is downloaded from.
	URI, SHA256 string
	// Bin is the name of the executable in the archive.
	Bin string
}

//go:embed nstpl.tmpl.yaml
var source string

// Render returns the manifest of a version of the plugin.
func Render(version string, archives []Archive) ([]byte, error) {
	parsed, err := template.New("nstpl.yaml").Parse(source)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	err = parsed.Execute(&content, struct {
		Version  string
		Archives []Archive
	}{version, archives})
	return content.Bytes(), err
}

// Parse reads a manifest. As in krew, an unknown field is an error.
func Parse(data []byte) (*Plugin, error) {
	plugin := &Plugin{}
	if err := yaml.UnmarshalStrict(data, plugin); err != nil {
		return nil, fmt.Errorf("cannot parse the manifest: %w", err)
	}
	return plugin, nil
}
