// Command release builds the files of a version of nstpl: archives of the plugin, images of the operator and
// nstpl-sync, manifests and a Helm chart that install them, SBOMs of the programs, SHA256SUMS, and krew's manifest of
// the plugin. Builds are reproducible: the same commit gives the same bytes.
package main

import (
	"bytes"
	"context"
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
	"time"

	"github.com/blang/semver/v4"
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

// release holds the settings of a release and the state of its build.
type release struct {
	version string
	// baseURL is the URL of the folder that has a folder for each version.
	baseURL string
	// image is the name of the operator's image, without a tag. The image of nstpl-sync is next to it.
	image string
	// out is the folder that the files of the release are written to.
	out string
	// manifest is the path that krew's manifest is written to.
	manifest string
	// commit is the hash of the commit that is built, with the suffix -dirty if tracked files have changed since. It is
	// empty outside of a git repository.
	commit     string
	commitTime time.Time
	license    []byte
	// progress gets a line for each program that is built, and the compiler's errors.
	progress io.Writer
	// checksums is the content of SHA256SUMS.
	checksums bytes.Buffer
}

func run(ctx context.Context, args []string, progress io.Writer) error {
	r := &release{progress: progress}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.version, "version", "", "the version, such as v1.2.3")
	flags.StringVar(&r.baseURL, "base-url", "https://nstpl.dev/releases",
		"URL of the folder that has a folder with the archives of each version")
	flags.StringVar(&r.image, "image", "nstpl.dev/nstpl-operator",
		"name of the operator's image, without a tag; its last element is replaced by nstpl-sync for the other image")
	flags.StringVar(&r.out, "out", "dist", "folder for the files of the release")
	platforms := flags.String("platforms",
		"linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "comma-separated GOOS/GOARCH")
	flags.StringVar(&r.manifest, "manifest", "krew/nstpl.yaml", "file for krew's manifest")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := semver.Parse(strings.TrimPrefix(r.version, "v")); err != nil || !strings.HasPrefix(r.version, "v") {
		return fmt.Errorf("%q is not a valid version: use a version such as VERSION=v1.2.3", r.version)
	}
	if strings.Contains(r.version, "+") {
		return fmt.Errorf("%q is not a valid version: image tags cannot contain +, so leave out the build metadata",
			r.version)
	}
	var err error
	if r.commit, r.commitTime, err = sourceCommit(ctx); err != nil {
		return err
	}
	if r.license, err = os.ReadFile("LICENSE"); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(r.out, 0o755), r.deleteEarlier()); err != nil {
		return err
	}
	all := strings.Split(*platforms, ",")
	if err := r.buildPlugin(ctx, all); err != nil {
		return err
	}
	if err := r.buildWorkloads(ctx, all); err != nil {
		return err
	}
	if err := r.copyFiles(); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.out, checksumsFile), r.checksums.Bytes(), 0o644)
}

// copyFiles adds files of the project to the release as they are.
func (r *release) copyFiles() error {
	for _, file := range []struct{ name, source string }{
		{"nstpl.schema.json", "manifests/schemas/nstpl.json"},
		{"static-validating.yaml", "manifests/static/validating/nstpl.yaml"},
		{"static-mutating.yaml", "manifests/static/mutating/nstpl.yaml"},
	} {
		content, err := os.ReadFile(file.source)
		if err != nil {
			return err
		}
		if _, err := r.write(file.name, content); err != nil {
			return err
		}
	}
	return nil
}

// sourceCommit returns the hash of the commit that is built, as in release.commit, and its time. The environment
// variable SOURCE_DATE_EPOCH overrides the time.
func sourceCommit(ctx context.Context) (commit string, at time.Time, err error) {
	out, gitErr := exec.CommandContext(ctx, "git", "log", "-1", "--format=%H %ct").Output()
	commit, seconds, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	} else if gitErr != nil {
		return "", time.Time{},
			fmt.Errorf("cannot read the time of the commit from git (set SOURCE_DATE_EPOCH to build without git): %w",
				gitErr)
	}
	if changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain",
		"--untracked-files=no").Output(); err == nil && len(changes) > 0 {
		commit += "-dirty"
	}
	number, err := strconv.ParseInt(seconds, 10, 64)
	return commit, time.Unix(number, 0).UTC(), err
}
