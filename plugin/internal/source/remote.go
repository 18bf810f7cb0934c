package source

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// fetchTimeout is how long the download of a URL may take.
const fetchTimeout = 30 * time.Second

func isURL(path string) bool {
	return strings.HasPrefix(path, "http://") || strings.HasPrefix(path, "https://")
}

// addURL reads the file of a URL.
func (i *inputs) addURL(url string) error {
	client := &http.Client{Timeout: fetchTimeout}
	response, err := client.Get(url) //nolint:noctx // Timeout ends the request
	if err != nil {
		return fmt.Errorf("read %s: %w", url, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("read %s: the server answered %s", url, response.Status)
	}
	return i.readAll(url, response.Body)
}

// addKustomization reads what kustomize builds.
func (i *inputs) addKustomization(dir string) error {
	built, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return fmt.Errorf("build the kustomization %s: %w", dir, err)
	}
	content, err := built.AsYaml()
	if err != nil {
		return fmt.Errorf("build the kustomization %s: %w", dir, err)
	}
	return i.readAll(dir, strings.NewReader(string(content)))
}
