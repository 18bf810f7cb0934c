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

// program is a program as it was built for a platform.
type program struct {
	os, arch string
	// file is what it is called there.
	file    string
	content []byte
	info    *buildinfo.BuildInfo
}

// compile builds a program of cmd for a platform.
func (r *release) compile(ctx context.Context, name, platform string) (program, error) {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return program{}, errors.New("a platform is GOOS/GOARCH")
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
	at := filepath.Join(dir, p.file)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -X nstpl.dev/nstpl/operator/version.release="+r.Version+" -X nstpl.dev/nstpl/operator/version.commit="+r.commit, "-o", at, "./cmd/"+name)
	// What else decides on the bytes is not left to who builds.
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch, "GOAMD64=v1", "GOARM64=v8.0",
		"GOFLAGS=-mod=readonly", "GOEXPERIMENT=", "GOFIPS140=off")
	build.Stderr = r.progress
	if err := build.Run(); err != nil {
		return program{}, err
	}
	if p.content, err = os.ReadFile(at); err != nil {
		return program{}, err
	}
	p.info, err = buildinfo.Read(bytes.NewReader(p.content))
	return p, err
}
