package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"
	"text/template"

	"nstpl.dev/nstpl/krew/archive"
)

const plugin = "kubectl-nstpl"

// built is an archive of the plugin.
type built struct{ OS, Arch, File, URI, SHA256, Bin string }

// buildPlugin packs the plugin, with the license, for each platform.
func (r *release) buildPlugin(ctx context.Context, platforms []string) error {
	var programs []program
	for _, platform := range platforms {
		p, err := r.compile(ctx, plugin, platform)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", plugin, platform, err)
		}
		if err := r.pack(p); err != nil {
			return fmt.Errorf("%s for %s: %w", plugin, platform, err)
		}
		programs = append(programs, p)
	}
	return r.writeSBOM(plugin, programs)
}

func (r *release) pack(p program) error {
	b := built{OS: p.os, Arch: p.arch, Bin: p.file, File: fmt.Sprintf("nstpl-%s-%s-%s.tar.gz", r.Version, p.os, p.arch)}
	if p.os == "windows" {
		b.File = strings.TrimSuffix(b.File, ".tar.gz") + ".zip"
	}
	var packed bytes.Buffer
	files := []archive.File{{Name: p.file, Content: p.content, Program: true}, {Name: "LICENSE", Content: r.license}}
	if err := archive.Write(&packed, b.File, files, r.at); err != nil {
		return err
	}
	var err error
	b.SHA256, err = r.write(b.File, packed.Bytes())
	b.URI = r.baseURL + "/" + r.Version + "/" + b.File
	r.Archives = append(r.Archives, b)
	return err
}

// writeManifest writes krew's manifest of the plugin.
func (r *release) writeManifest(path string) error {
	parsed, err := template.ParseFiles("krew/nstpl.tmpl.yaml")
	if err != nil {
		return err
	}
	var manifest bytes.Buffer
	if err := parsed.Execute(&manifest, r); err != nil {
		return err
	}
	return os.WriteFile(path, manifest.Bytes(), 0o644)
}
