package helm_test

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	nstplarchive "nstpl.dev/nstpl/krew/release/archive"
	nstplchart "nstpl.dev/nstpl/krew/release/chart"
	"nstpl.dev/nstpl/test/operator"
)

// digest is that of the images in the chart.
const digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"

// components are the folders in manifests/components, and the names of their values.
var components = map[string]string{
	"openreports": "openreports", "expiry": "expiry", "self-service-only": "selfServiceOnly",
	"cert-manager": "certManager", "grafana": "grafana", "network-policy": "networkPolicy", "prometheus": "prometheus",
	"roles": "roles", "security-context-constraints": "securityContextConstraints", "sync": "sync",
}

// sharedChart is the chart as Helm loads it. It is generated once, because kustomize takes seconds for that.
var sharedChart = sync.OnceValues(func() (*chart.Chart, error) {
	files, err := nstplchart.Chart{
		Version: "v1.2.3", Manifests: "../../manifests", License: []byte("a license\n"),
		Images: map[string]nstplchart.Image{
			"nstpl-operator": {Repository: "registry.example.com/nstpl-operator", Digest: digest},
			"nstpl-sync":     {Repository: "registry.example.com/nstpl-sync", Digest: digest},
		},
	}.Files()
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer
	if err := nstplarchive.Write(&archive, "nstpl-1.2.3.tgz", files, time.Unix(1, 0)); err != nil {
		return nil, err
	}
	return loader.LoadArchive(&archive)
})

// newChart returns a copy of the chart, since Helm changes the one that it renders.
func newChart(t *testing.T) *chart.Chart {
	t.Helper()
	shared, err := sharedChart()
	require.NoError(t, err)
	loaded := *shared
	loaded.Values = runtime.DeepCopyJSON(shared.Values)
	return &loaded
}

// renderer returns what helm template runs.
func renderer(kubernetes string) *action.Install {
	install := action.NewInstall(&action.Configuration{Log: func(string, ...any) {}})
	install.ReleaseName, install.Namespace = "nstpl", "nstpl-system"
	install.DryRun, install.ClientOnly, install.Replace = true, true, true
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		panic(err)
	}
	install.KubeVersion = version
	return install
}

// rendered returns the objects that helm template prints.
func rendered(t *testing.T, kubernetes string, values map[string]any) map[string]map[string]any {
	t.Helper()
	release, err := renderer(kubernetes).Run(newChart(t), values)
	require.NoError(t, err)
	return parsed(t, release.Manifest)
}

// built returns the objects that kubectl kustomize prints for a kustomization next to the folder manifests.
func built(t *testing.T, kustomization string) map[string]map[string]any {
	t.Helper()
	return parsed(t, builtText(t, kustomization))
}

func builtText(t *testing.T, kustomization string) string {
	t.Helper()
	root := t.TempDir()
	require.NoError(t, os.CopyFS(filepath.Join(root, "manifests"), os.DirFS("../../manifests")))
	for _, name := range []string{"nstpl-operator", "nstpl-sync"} {
		if !strings.Contains(kustomization, "images:") {
			kustomization += "images:\n"
		}
		kustomization += fmt.Sprintf("- {name: %s, newName: registry.example.com/%s, newTag: v1.2.3, digest: '%s'}\n", name,
			name, digest)
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, "kustomization.yaml"), []byte(kustomization), 0o600))
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // like kubectl
	objects, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), root)
	require.NoError(t, err)
	content, err := objects.AsYaml()
	require.NoError(t, err)
	return string(content)
}

// parsed returns the objects of a stream by kind, namespace and name.
func parsed(t *testing.T, stream string) map[string]map[string]any {
	t.Helper()
	all, err := operator.Decode(stream)
	require.NoError(t, err)
	objects := map[string]map[string]any{}
	for _, object := range all {
		key := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		require.NotContains(t, objects, key)
		objects[key] = object.Object
	}
	return objects
}

// withoutKeep removes the annotation that only Helm evaluates. Its objects are those whose deletion loses data.
func withoutKeep(objects map[string]map[string]any) (kept []string) {
	for key, object := range objects {
		annotations, _, _ := unstructured.NestedStringMap(object, "metadata", "annotations")
		if annotations["helm.sh/resource-policy"] != "keep" {
			continue
		}
		kept = append(kept, key)
		unstructured.RemoveNestedField(object, "metadata", "annotations", "helm.sh/resource-policy")
		if len(annotations) == 1 {
			unstructured.RemoveNestedField(object, "metadata", "annotations")
		}
	}
	return kept
}

func requireEqual(t *testing.T, kubernetes string, values map[string]any, kustomization string) {
	t.Helper()
	want, got := built(t, kustomization), rendered(t, kubernetes, values)
	withoutKeep(got)
	for key, object := range want {
		require.Contains(t, got, key)
		wantYAML, err := yaml.Marshal(object)
		require.NoError(t, err)
		gotYAML, err := yaml.Marshal(got[key])
		require.NoError(t, err)
		require.Equal(t, string(wantYAML), string(gotYAML), key)
	}
	for key := range got {
		require.Contains(t, want, key)
	}
}

// With default values, the chart has the objects of kubectl apply -k, on each version of Kubernetes.
func TestChartRendersTheManifests(t *testing.T) {
	t.Parallel()
	requireEqual(t, "v1.36.3", nil, "resources: [manifests]\n")
	requireEqual(t, "v1.37.0-rc.1", nil, "resources: [manifests]\n")
	requireEqual(t, "v1.35.4+k3s1", nil, "resources: [manifests/overlays/before-1.36]\n")
}

// Each component of the chart has the objects, and makes the changes, of the component of kustomize.
func TestChartRendersEachComponent(t *testing.T) {
	t.Parallel()
	folders, err := os.ReadDir("../../manifests/components")
	require.NoError(t, err)
	require.Len(t, folders, len(components))
	for folder, name := range components {
		t.Run(folder, func(t *testing.T) {
			t.Parallel()
			requireEqual(t, "v1.36.3", map[string]any{"components": map[string]any{name: true}},
				kustomization(t, "manifests", folder))
		})
	}
	t.Run("all", func(t *testing.T) {
		t.Parallel()
		all := map[string]any{}
		folders := slices.Sorted(maps.Keys(components)) // in which the chart adds the components' arguments
		for _, name := range components {
			all[name] = true
		}
		requireEqual(t, "v1.36.3", map[string]any{"components": all}, kustomization(t, "manifests", folders...))
		requireEqual(t, "v1.34.0", map[string]any{"components": all},
			kustomization(t, "manifests/overlays/before-1.36", folders...))
	})
}

func kustomization(t *testing.T, base string, folders ...string) string {
	t.Helper()
	resources, patches := base, ""
	for _, folder := range folders {
		content, err := os.ReadFile("../../manifests/components/" + folder + "/kustomization.yaml")
		require.NoError(t, err)
		if strings.Contains(string(content), "kind: Component\n") {
			patches += ", manifests/components/" + folder
		} else {
			resources += ", manifests/components/" + folder
		}
	}
	return "resources: [" + resources + "]\ncomponents: [" + strings.TrimPrefix(patches, ", ") + "]\n"
}
