// Package image puts a program into OCI images without a container engine: on an empty base, and run by somebody who is
// not root.
package image

import (
	"bytes"
	"errors"
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

	"nstpl.dev/nstpl/krew/archive"
)

// User is who runs the program. A number, so that a kubelet can tell that it is not root.
const User = "65532:65532"

// Release is what all images of a program have in common.
type Release struct {
	// Program is the name of the program, which is all that is in an image besides the license.
	Program string
	Version string
	// Commit is what the program was built from, if that is known.
	Commit string
	// Name is that of the image, without a tag.
	Name    string
	License []byte
	At      time.Time
}

// Platform is a program as it was built for a GOARCH of linux.
type Platform struct {
	Arch   string
	Binary []byte
}

// Write writes an OCI image layout of images of all platforms into a folder, which it makes anew, and returns the
// digest of their index.
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
	to, err := layout.Write(dir, empty.Index)
	if err != nil {
		return "", err
	}
	// The first is the specification's, and the second what containerd and Docker call the image when they load it.
	err = to.AppendIndex(index, layout.WithAnnotations(map[string]string{
		"org.opencontainers.image.ref.name": r.Version,
		"io.containerd.image.name":          r.Name + ":" + r.Version,
	}))
	if err != nil {
		return "", err
	}
	if err := errors.Join(err, readable(dir)); err != nil {
		return "", err
	}
	digest, err := index.Digest()
	return digest.String(), err
}

// readable has everybody read what is in a folder, as they may what else is handed out.
func readable(dir string) error {
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
		{Name: r.Program, Content: platform.Binary, Program: true}, {Name: "LICENSE", Content: r.License},
	}
	if err := archive.Write(&content, "layer.tar", files, r.At); err != nil {
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
		History: v1.History{Created: v1.Time{Time: r.At}, CreatedBy: r.Program + " " + r.Version},
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
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: r.At}
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

// Pack puts an image layout into the bytes of one .tar, which container engines load.
func Pack(layout string, at time.Time) ([]byte, error) {
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
	err = archive.Write(&packed, "image.tar", files, at)
	return packed.Bytes(), err
}
