// Package image builds OCI images without a container engine. An image holds a single program and its license on an
// empty base, and runs as a user who is not root.
package image

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"nstpl.dev/nstpl/krew/release/archive"
)

// User is the user and group that the program runs as. Kubelets enforce runAsNonRoot only for numeric users.
const User = "65532:65532"

// Release holds what the images of all platforms have in common.
type Release struct {
	// Program is the name of the program and of its file in the root folder of the image.
	Program string
	Version string
	// Commit is the commit that the program was built from, or empty if it is unknown.
	Commit string
	// Name is the name of the image, without a tag.
	Name    string
	License []byte
	// Created is the creation time of the image and the modification time of its files.
	Created time.Time
}

// Platform holds the program for one architecture of linux.
type Platform struct {
	Arch   string // as in GOARCH
	Binary []byte
}

// Write writes an OCI image layout with an image for each platform into a folder, and returns the digest of the image
// index. Earlier contents of the folder are deleted.
func (r Release) Write(dir string, platforms []Platform) (string, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		built, err := r.build(platform)
		if err != nil {
			return "", fmt.Errorf("image for linux/%s: %w", platform.Arch, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        built,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: platform.Arch}},
		})
	}
	if err := os.RemoveAll(dir); err != nil {
		return "", err
	}
	written, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	// The first annotation is part of the OCI specification. containerd and Docker name the loaded image after the
	// second.
	err = written.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.Version,
		"io.containerd.image.name":          r.Name + ":" + r.Version,
	}))
	if err != nil {
		return "", err
	}
	if err := makeReadable(dir); err != nil {
		return "", err
	}
	digest, err := index.Digest()
	return digest.String(), err
}

// makeReadable lets all users read a folder and the files in it, like the other files of a release.
func makeReadable(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}

func (r Release) build(platform Platform) (v1.Image, error) {
	var content bytes.Buffer
	files := []archive.File{
		{Name: r.Program, Content: platform.Binary, Executable: true}, {Name: "LICENSE", Content: r.License},
	}
	if err := archive.Write(&content, "layer.tar", files, r.Created); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content.Bytes())), nil
	}, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	built, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: r.Created}, CreatedBy: r.Program + " " + r.Version},
	})
	if err != nil {
		return nil, err
	}
	config, err := built.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	r.configure(config, platform.Arch)
	built, err = mutate.ConfigFile(built, config)
	return mutate.ConfigMediaType(mutate.MediaType(built, types.OCIManifestSchema1), types.OCIConfigJSON), err
}

func (r Release) configure(config *v1.ConfigFile, arch string) {
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.Created}
	config.Config = v1.Config{
		User: User, Entrypoint: []string{"/" + r.Program}, WorkingDir: "/",
		Labels: map[string]string{
			"org.opencontainers.image.title":    r.Program,
			"org.opencontainers.image.version":  r.Version,
			"org.opencontainers.image.licenses": "Apache-2.0",
		},
	}
	if r.Commit != "" {
		config.Config.Labels["org.opencontainers.image.revision"] = r.Commit
	}
}

// Pack returns an OCI image layout as a .tar archive, which container engines can load. Its files have the given
// modification time.
func Pack(layout string, modified time.Time) ([]byte, error) {
	var files []archive.File
	err := filepath.WalkDir(layout, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(layout, path)
		files = append(files, archive.File{Name: filepath.ToSlash(name), Content: content})
		return err
	})
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	err = archive.Write(&packed, "image.tar", files, modified)
	return packed.Bytes(), err
}
