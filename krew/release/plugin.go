package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"nstpl.dev/nstpl/krew/manifest"
	"nstpl.dev/nstpl/krew/release/archive"
)

const plugin = "kubectl-nstpl"

// buildPlugin builds an archive with the plugin and the license for each platform, and krew's manifest of them.
func (r *release) buildPlugin(ctx context.Context, platforms []string) error {
	var programs []program
	var archives []manifest.Archive
	for _, platform := range platforms {
		p, err := r.compile(ctx, plugin, platform)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", plugin, platform, err)
		}
		packed, err := r.pack(p)
		if err != nil {
			return fmt.Errorf("%s for %s: %w", plugin, platform, err)
		}
		programs = append(programs, p)
		archives = append(archives, packed)
	}
	content, err := manifest.Render(r.version, archives)
	if err != nil {
		return err
	}
	parsed, err := manifest.Parse(content)
	if err != nil {
		return err
	}
	if problems := parsed.Check("nstpl"); len(problems) > 0 {
		return fmt.Errorf("%s does not follow krew's rules: %w", r.manifest, errors.Join(problems...))
	}
	if err := os.WriteFile(r.manifest, content, 0o644); err != nil {
		return err
	}
	return r.writeSBOM(plugin, programs)
}

// pack writes the archive with a build of the plugin.
func (r *release) pack(p program) (manifest.Archive, error) {
	name := fmt.Sprintf("nstpl-%s-%s-%s.tar.gz", r.version, p.os, p.arch)
	if p.os == "windows" {
		name = strings.TrimSuffix(name, ".tar.gz") + ".zip"
	}
	files := []archive.File{
		{Name: p.file, Content: p.content, Executable: true}, {Name: "LICENSE", Content: r.license},
	}
	var content bytes.Buffer
	if err := archive.Write(&content, name, files, r.commitTime); err != nil {
		return manifest.Archive{}, err
	}
	sum, err := r.write(name, content.Bytes())
	return manifest.Archive{
		OS: p.os, Arch: p.arch, URI: r.baseURL + "/" + r.version + "/" + name, SHA256: sum, Bin: p.file,
	}, err
}
