package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/filters/imagetag"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"nstpl.dev/nstpl/krew/release/image"
)

const operator = "nstpl-operator"

// buildOperator builds the operator's image for the linux platforms, and the manifests that install this image.
func (r *release) buildOperator(ctx context.Context, platforms []string) error {
	var programs []program
	var images []image.Platform
	for _, platform := range platforms {
		if !strings.HasPrefix(platform, "linux/") {
			continue
		}
		p, err := r.compile(ctx, operator, platform)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", operator, platform, err)
		}
		programs = append(programs, p)
		images = append(images, image.Platform{Arch: p.arch, Binary: p.content})
	}
	layout := filepath.Join(r.out, operator+"-image")
	digest, err := image.Release{
		Program: operator, Version: r.version, Commit: r.commit, Name: r.image, License: r.license,
		Created: r.commitTime,
	}.Write(layout, images)
	if err != nil {
		return err
	}
	packed, err := image.Pack(layout, r.commitTime)
	if err != nil {
		return err
	}
	if _, err := r.write(fmt.Sprintf("%s-%s-oci.tar", operator, r.version), packed); err != nil {
		return err
	}
	if err := errors.Join(
		r.writeInstallation("install.yaml", "manifests", digest),
		r.writeInstallation("install-before-1.36.yaml", "manifests/overlays/before-1.36", digest),
	); err != nil {
		return err
	}
	return r.writeSBOM(operator, programs)
}

// writeInstallation builds a kustomization and writes its objects into one file, with the image of this release.
func (r *release) writeInstallation(file, kustomization, digest string) error {
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy // like kubectl: namespaces first, webhooks last
	objects, err := krusty.MakeKustomizer(options).Run(filesys.MakeFsOnDisk(), kustomization)
	if err != nil {
		return err
	}
	err = objects.ApplyFilter(imagetag.LegacyFilter{
		ImageTag: types.Image{Name: operator, NewName: r.image, NewTag: r.version, Digest: digest},
	})
	if err != nil {
		return err
	}
	content, err := objects.AsYaml()
	if err != nil {
		return err
	}
	_, err = r.write(file, content)
	return err
}
