package main

import (
	"context"
	"fmt"
	"path"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/imagetag"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

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

// buildWorkload builds the image of a workload for the linux platforms, and the manifests that install this image.
func (r *release) buildWorkload(ctx context.Context, w workload, platforms []string) error {
	var programs []program
	var images []image.Platform
	for _, platform := range platforms {
		if !strings.HasPrefix(platform, "linux/") {
			continue
		}
		p, err := r.compile(ctx, w.program, platform)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", w.program, platform, err)
		}
		programs = append(programs, p)
		images = append(images, image.Platform{Arch: p.arch, Binary: p.content})
	}
	layout := filepath.Join(r.out, w.program+"-image")
	digest, err := image.Release{
		Program: w.program, Version: r.version, Commit: r.commit, Name: w.image, License: r.license,
		Created: r.commitTime,
	}.Write(layout, images)
	if err != nil {
		return err
	}
	packed, err := image.Pack(layout, r.commitTime)
	if err != nil {
		return err
	}
	if _, err := r.write(fmt.Sprintf("%s-%s-oci.tar", w.program, r.version), packed); err != nil {
		return err
	}
	released := types.Image{Name: w.program, NewName: w.image, NewTag: r.version, Digest: digest}
	for _, i := range w.installations {
		if err := r.writeInstallation(i, released); err != nil {
			return err
		}
	}
	return r.writeSBOM(w.program, programs)
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
