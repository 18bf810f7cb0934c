package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is a program that was built for one platform.
type program struct {
	os, arch string
	// file is the name of the executable on that platform.
	file    string
	content []byte
	info    *buildinfo.BuildInfo
}

// compile builds the program cmd/NAME for a platform such as linux/amd64. The same commit and version give the same
// bytes on every machine.
func (r *release) compile(ctx context.Context, name, platform string) (program, error) {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return program{}, errors.New("a platform must be GOOS/GOARCH, such as linux/amd64")
	}
	p := program{os: system, arch: arch, file: name}
	if system == "windows" {
		p.file += ".exe"
	}
	fmt.Fprintln(r.progress, "building", name, "for", platform)
	dir, err := os.MkdirTemp("", "nstpl-release-")
	if err != nil {
		return program{}, err
	}
	defer os.RemoveAll(dir)
	executable := filepath.Join(dir, p.file)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -X nstpl.dev/nstpl/operator/version.release="+r.version+" -X nstpl.dev/nstpl/operator/version.commit="+r.commit, "-o", executable, "./cmd/"+name)
	// These settings change the bytes, so they don't come from the environment of the build.
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off")
	build.Stderr = r.progress
	if err := build.Run(); err != nil {
		return program{}, err
	}
	if p.content, err = os.ReadFile(executable); err != nil {
		return program{}, err
	}
	p.info, err = buildinfo.Read(bytes.NewReader(p.content))
	return p, err
}
