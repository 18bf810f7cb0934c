package image_test

import (
	"archive/tar"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/krew/release/image"
)

func TestWrite(t *testing.T) {
	t.Parallel()
	release := image.Release{
		Program: "operator", Version: "v1.2.3", Commit: "abc", Name: "registry.example.com/operator",
		License: []byte("free"), Created: time.Unix(1700000000, 0).UTC(),
	}
	dir := filepath.Join(t.TempDir(), "image")
	digest, err := release.Write(dir,
		[]image.Platform{{Arch: "amd64", Binary: []byte("x")}, {Arch: "arm64", Binary: []byte("y")}})
	require.NoError(t, err)

	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		require.NoError(t, err)
		info, err := entry.Info()
		if !entry.IsDir() {
			require.Equal(t, fs.FileMode(0o644), info.Mode(), path)
		}
		return err
	}))
	index, err := layout.ImageIndexFromPath(dir)
	require.NoError(t, err)
	require.NoError(t, validate.Index(index))
	manifest, err := index.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 1)
	require.Equal(t, digest, manifest.Manifests[0].Digest.String())
	require.Equal(t, "registry.example.com/operator:v1.2.3",
		manifest.Manifests[0].Annotations["io.containerd.image.name"])
	platforms, err := index.ImageIndex(manifest.Manifests[0].Digest)
	require.NoError(t, err)
	manifest, err = platforms.IndexManifest()
	require.NoError(t, err)
	require.Len(t, manifest.Manifests, 2)
	for i, arch := range []string{"amd64", "arm64"} {
		require.Equal(t, "linux/"+arch, manifest.Manifests[i].Platform.String())
		built, err := platforms.Image(manifest.Manifests[i].Digest)
		require.NoError(t, err)
		config, err := built.ConfigFile()
		require.NoError(t, err)
		require.Equal(t, arch, config.Architecture)
		require.Equal(t, "65532:65532", config.Config.User)
		require.Equal(t, "abc", config.Config.Labels["org.opencontainers.image.revision"])
		require.Equal(t, []string{"/operator"}, config.Config.Entrypoint)
		layers, err := built.Layers()
		require.NoError(t, err)
		require.Len(t, layers, 1)
		content, err := layers[0].Uncompressed()
		require.NoError(t, err)
		files := map[string]string{}
		for reader := tar.NewReader(content); ; {
			header, err := reader.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			body, err := io.ReadAll(reader)
			require.NoError(t, err)
			files[header.Name] = string(body)
		}
		require.Equal(t, map[string]string{"operator": []string{"x", "y"}[i], "LICENSE": "free"}, files)
	}

	// A second build deletes the earlier contents and gives the same image.
	require.NoError(t, os.WriteFile(filepath.Join(dir, "leftover"), nil, 0o600))
	again, err := release.Write(dir,
		[]image.Platform{{Arch: "amd64", Binary: []byte("x")}, {Arch: "arm64", Binary: []byte("y")}})
	require.NoError(t, err)
	require.Equal(t, digest, again)
	require.NoFileExists(t, filepath.Join(dir, "leftover"))
}
