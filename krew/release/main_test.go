package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"nstpl.dev/nstpl/krew/manifest"
	"nstpl.dev/nstpl/test/marks"
)

func TestReleaseIsReproducible(t *testing.T) {
	marks.Thorough(t)
	t.Chdir("../..")
	t.Setenv("SOURCE_DATE_EPOCH", "1700000000")
	platform := "linux/" + runtime.GOARCH
	build := func(dir string) map[string]string {
		manifestFile := filepath.Join(dir, "nstpl.yaml")
		require.NoError(t,
			run(t.Context(),
				[]string{
					"-version=v1.2.3", "-out=" + dir, "-manifest=" + manifestFile, "-platforms=" + platform,
					"-image=registry.example.com/nstpl-operator",
				}, io.Discard))
		files := map[string]string{}
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		for _, entry := range entries {
			if entry.IsDir() {
				continue // the images, whose files are in the .tar files as well
			}
			content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
			require.NoError(t, err)
			files[entry.Name()] = string(content)
		}
		return files
	}
	first := build(t.TempDir())
	archive := "nstpl-v1.2.3-" + strings.ReplaceAll(platform, "/", "-") + ".tar.gz"
	released := []string{
		archive, "kubectl-nstpl-v1.2.3.cdx.json",
		"nstpl-operator-v1.2.3-oci.tar", "install.yaml", "install-before-1.36.yaml", "nstpl-operator-v1.2.3.cdx.json",
		"nstpl-sync-v1.2.3-oci.tar", "sync.yaml", "nstpl-sync-v1.2.3.cdx.json", "nstpl-1.2.3.tgz",
		"nstpl.schema.json", "static-validating.yaml", "static-mutating.yaml",
	}
	require.ElementsMatch(t, append(released, "nstpl.yaml", "SHA256SUMS"), slices.Collect(maps.Keys(first)))
	for _, name := range released {
		require.Contains(t, first["SHA256SUMS"], fmt.Sprintf("%x  %s\n", sha256.Sum256([]byte(first[name])), name))
	}
	require.Contains(t, first["nstpl-operator-v1.2.3.cdx.json"], `"pkg:golang/sigs.k8s.io/controller-runtime`)
	require.Contains(t, first["nstpl-sync-v1.2.3.cdx.json"], `"pkg:golang/github.com/go-git/go-git/v5`)
	// The image has no certificates of authorities, so the program must contain them.
	require.Contains(t, first["nstpl-sync-v1.2.3.cdx.json"], `"pkg:golang/golang.org/x/crypto/x509roots/fallback@`)
	for file, program := range map[string]string{
		"install.yaml": "nstpl-operator", "install-before-1.36.yaml": "nstpl-operator", "sync.yaml": "nstpl-sync",
	} {
		images := regexp.MustCompile(`image: (\S+):v1.2.3@(sha256:[0-9a-f]{64})\n`).FindAllStringSubmatch(first[file],
			-1)
		require.Len(t, images, 1, file)
		require.Equal(t, "registry.example.com/"+program, images[0][1])
		require.Contains(t, first[program+"-v1.2.3-oci.tar"], images[0][2])
		// The name of an image that kind loads from the archive.
		require.Contains(t, first[program+"-v1.2.3-oci.tar"], `"registry.example.com/`+program+`:v1.2.3"`)
		require.Equal(t, 1, strings.Count(first[file], " image: "), file)
	}
	requireBuildsTogether(t, first["install.yaml"], first["sync.yaml"])
	requireBuildsTogether(t, first["install-before-1.36.yaml"], first["sync.yaml"])
	// The settings of the environment change nothing. The files of an earlier release are deleted, other files are
	// kept.
	t.Setenv("GOFLAGS", "-tags=other")
	t.Setenv("GOAMD64", "v2")
	again := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(again, "nstpl-v1.2.2.tar.gz"), nil, 0o600))
	require.NoError(t,
		os.WriteFile(filepath.Join(again, "SHA256SUMS"), []byte("abc  nstpl-v1.2.2.tar.gz\nabc  ../notes\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(again), "notes"), nil, 0o600))
	require.Equal(t, first, build(again))
	require.FileExists(t, filepath.Join(filepath.Dir(again), "notes"))
	plugin, err := manifest.Parse([]byte(first["nstpl.yaml"]))
	require.NoError(t, err)
	require.Empty(t, plugin.Check("nstpl"))
	require.Len(t, plugin.PlatformsFor(platform), 1)
	require.Equal(t, "https://nstpl.dev/releases/v1.2.3/"+archive, plugin.PlatformsFor(platform)[0].URI)
	require.Equal(t, fmt.Sprintf("%x", sha256.Sum256([]byte(first[archive]))), plugin.PlatformsFor(platform)[0].SHA256)
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3+build"} {
		require.Error(t, run(t.Context(), []string{"-version=" + version}, io.Discard))
	}
}

// requireBuildsTogether requires that users can name both files in a kustomization, and that the first creates the
// namespace of the objects in the second.
func requireBuildsTogether(t *testing.T, install, sync string) {
	t.Helper()
	files := filesys.MakeFsInMemory()
	for name, content := range map[string]string{
		"install.yaml": install, "sync.yaml": sync, "kustomization.yaml": "resources: [install.yaml, sync.yaml]\n",
	} {
		require.NoError(t, files.WriteFile(name, []byte(content)))
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, ".")
	require.NoError(t, err)
	created := map[string]bool{"": true}
	deployments := 0
	for _, object := range objects.Resources() {
		switch object.GetKind() {
		case "Namespace":
			created[object.GetName()] = true
		case "Deployment":
			deployments++
		}
	}
	require.Equal(t, 2, deployments)
	for _, object := range objects.Resources() {
		require.Contains(t, created, object.GetNamespace(), object.GetName())
	}
}
