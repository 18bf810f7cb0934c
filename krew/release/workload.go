package main

import (
	"bytes"
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/imagetag"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"nstpl.dev/nstpl/krew/release/archive"
	"nstpl.dev/nstpl/krew/release/chart"
	"nstpl.dev/nstpl/krew/release/image"
)

const syncProgram = "nstpl-sync"

// workload is a program that runs in clusters.
type workload struct {
	program string
	// image is the name of the program's image, without a tag.
	image         string
	installations []installation
}

// installation is a file with the objects of a kustomization, which run a workload.
type installation struct{ file, kustomization string }

// workloads returns the programs that run in clusters. Their images differ in the last element of their names only.
func (r *release) workloads() []workload {
	return []workload{
		{program: "nstpl-operator", image: r.image, installations: []installation{
			{"install.yaml", "manifests"}, {"install-before-1.36.yaml", "manifests/overlays/before-1.36"},
		}},
		{program: syncProgram, image: path.Join(path.Dir(r.image), syncProgram), installations: []installation{
			{"sync.yaml", "manifests/components/sync"},
		}},
	}
}

// buildWorkloads builds the image of each workload for the linux platforms, the manifests that install these images,
// and the Helm chart.
func (r *release) buildWorkloads(ctx context.Context, platforms []string) error {
	images := map[string]chart.Image{}
	for _, w := range r.workloads() {
		digest, err := r.buildWorkload(ctx, w, platforms)
		if err != nil {
			return err
		}
		images[w.program] = chart.Image{Repository: w.image, Digest: digest}
	}
	return r.writeChart(images)
}

// buildWorkload builds the image of a workload and the manifests that install it, and returns the image's digest.
func (r *release) buildWorkload(ctx context.Context, w workload, platforms []string) (digest string, err error) {
	var programs []program
	var images []image.Platform
	for _, platform := range platforms {
		if !strings.HasPrefix(platform, "linux/") {
			continue
		}
		p, err := r.compile(ctx, w.program, platform)
		if err != nil {
			return "", fmt.Errorf("%s for %s: %w", w.program, platform, err)
		}
		programs = append(programs, p)
		images = append(images, image.Platform{Arch: p.arch, Binary: p.content})
	}
	layout := filepath.Join(r.out, w.program+"-image")
	digest, err = image.Release{
		Program: w.program, Version: r.version, Commit: r.commit, Name: w.image, License: r.license,
		Created: r.commitTime,
	}.Write(layout, images)
	if err != nil {
		return "", err
	}
	packed, err := image.Pack(layout, r.commitTime)
	if err != nil {
		return "", err
	}
	if _, err := r.write(fmt.Sprintf("%s-%s-oci.tar", w.program, r.version), packed); err != nil {
		return "", err
	}
	released := types.Image{Name: w.program, NewName: w.image, NewTag: r.version, Digest: digest}
	for _, i := range w.installations {
		if err := r.writeInstallation(i, released); err != nil {
			return "", err
		}
	}
	return digest, r.writeSBOM(w.program, programs)
}

// writeInstallation builds a kustomization and writes its objects into one file, with the image of this release.
func (r *release) writeInstallation(i installation, released types.Image) error {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // like kubectl: namespaces first, webhooks last
	objects, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), i.kustomization)
	if err != nil {
		return err
	}
	if err := objects.ApplyFilter(imagetag.LegacyFilter{ImageTag: released}); err != nil {
		return err
	}
	content, err := objects.AsYaml()
	if err != nil {
		return err
	}
	_, err = r.write(i.file, content)
	return err
}

// writeChart writes the archive of the Helm chart, which installs the images of this release.
func (r *release) writeChart(images map[string]chart.Image) error {
	c := chart.Chart{Version: r.version, Images: images, Manifests: "manifests", License: r.license}
	files, err := c.Files()
	if err != nil {
		return fmt.Errorf("generate the Helm chart: %w", err)
	}
	var content bytes.Buffer
	if err := archive.Write(&content, c.FileName(), files, r.commitTime); err != nil {
		return err
	}
	_, err = r.write(c.FileName(), content.Bytes())
	return err
}
