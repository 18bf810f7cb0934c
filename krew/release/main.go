// Command release builds what a version of nstpl is handed out as, in a folder: the plugin's archives for krew with their checksums,
// and, from krew/nstpl.tmpl.yaml, the manifest by which krew installs them. Built twice, all bytes are the same.
package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"

	"github.com/blang/semver/v4"

	"nstpl.dev/nstpl/krew/archive"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:], os.Stderr)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// release is what is built.
type release struct {
	Version  string
	Archives []built

	baseURL, out string
	at           time.Time
	progress     io.Writer
}

// built is an archive.
type built struct{ OS, Arch, File, URI, SHA256, Bin string }

func run(ctx context.Context, args []string, progress io.Writer) error {
	r := &release{progress: progress}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.Version, "version", "", "the version, such as v1.2.3")
	flags.StringVar(&r.baseURL, "base-url", "https://nstpl.dev/releases", "where the archives of all versions are handed out")
	flags.StringVar(&r.out, "out", "dist", "the folder to write to")
	platforms := flags.String("platforms", "linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "comma-separated GOOS/GOARCH")
	manifest := flags.String("manifest", "krew/nstpl.yaml", "the manifest to write")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := semver.Parse(strings.TrimPrefix(r.Version, "v")); err != nil || !strings.HasPrefix(r.Version, "v") {
		return fmt.Errorf("the version is %q: write VERSION=v1.2.3", r.Version)
	}
	var err error
	if r.at, err = commitTime(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	for platform := range strings.SplitSeq(*platforms, ",") {
		if err := r.build(ctx, platform); err != nil {
			return fmt.Errorf("%s: %w", platform, err)
		}
	}
	return errors.Join(r.writeSums(), r.writeManifest(*manifest))
}

// commitTime is that of the last commit, or what SOURCE_DATE_EPOCH says.
func commitTime(ctx context.Context) (time.Time, error) {
	seconds := os.Getenv("SOURCE_DATE_EPOCH")
	if seconds == "" {
		out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("ask git for the commit's time (or set SOURCE_DATE_EPOCH): %w", err)
		}
		seconds = strings.TrimSpace(string(out))
	}
	number, err := strconv.ParseInt(seconds, 10, 64)
	return time.Unix(number, 0).UTC(), err
}

// build compiles the plugin for a platform and packs it with the license.
func (r *release) build(ctx context.Context, platform string) error {
	system, arch, ok := strings.Cut(platform, "/")
	if !ok {
		return errors.New("a platform is GOOS/GOARCH")
	}
	b := built{OS: system, Arch: arch, Bin: "kubectl-nstpl", File: fmt.Sprintf("nstpl-%s-%s-%s.tar.gz", r.Version, system, arch)}
	if system == "windows" {
		b.Bin, b.File = b.Bin+".exe", strings.TrimSuffix(b.File, ".tar.gz")+".zip"
	}
	fmt.Fprintln(r.progress, "building", b.File)
	dir, err := os.MkdirTemp("", "nstpl-release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, b.Bin)
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags=-s -w -X nstpl.dev/nstpl/operator/version.release="+r.Version, "-o", program, "./cmd/kubectl-nstpl")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+system, "GOARCH="+arch)
	build.Stderr = r.progress
	if err := build.Run(); err != nil {
		return err
	}
	binary, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	license, err := os.ReadFile("LICENSE")
	if err != nil {
		return err
	}
	var packed bytes.Buffer
	files := []archive.File{{Name: b.Bin, Content: binary, Program: true}, {Name: "LICENSE", Content: license}}
	if err := archive.Write(&packed, b.File, files, r.at); err != nil {
		return err
	}
	sum := sha256.Sum256(packed.Bytes())
	b.SHA256, b.URI = hex.EncodeToString(sum[:]), r.baseURL+"/"+r.Version+"/"+b.File
	r.Archives = append(r.Archives, b)
	return os.WriteFile(filepath.Join(r.out, b.File), packed.Bytes(), 0o644)
}

// writeSums writes what sha256sum -c reads.
func (r *release) writeSums() error {
	var sums bytes.Buffer
	for _, b := range r.Archives {
		fmt.Fprintf(&sums, "%s  %s\n", b.SHA256, b.File)
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), sums.Bytes(), 0o644)
}

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
