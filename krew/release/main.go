// Command release builds what a version of nstpl is handed out as, in a folder: the plugin's archives for krew, the
// operator's image, manifests that install it, what all of them are made of, and checksums; and, from
// krew/nstpl.tmpl.yaml, the manifest by which krew installs the plugin. Built twice, all bytes are the same.
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
	"io/fs"
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

// release is what is built.
type release struct {
	Version string
	// Archives are those of the plugin.
	Archives []built

	baseURL, image, out string
	// commit is what is built, if git knows, with -dirty behind it if it was changed since.
	commit   string
	license  []byte
	at       time.Time
	progress io.Writer
	sums     bytes.Buffer
}

func run(ctx context.Context, args []string, progress io.Writer) error {
	r := &release{progress: progress}
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.StringVar(&r.Version, "version", "", "the version, such as v1.2.3")
	flags.StringVar(&r.baseURL, "base-url", "https://nstpl.dev/releases",
		"where the archives of all versions are handed out")
	flags.StringVar(&r.image, "image", "nstpl.dev/nstpl-operator", "the name of the operator's image, without a tag")
	flags.StringVar(&r.out, "out", "dist", "the folder to write to")
	platforms := flags.String("platforms",
		"linux/amd64,linux/arm64,darwin/amd64,darwin/arm64,windows/amd64,windows/arm64", "comma-separated GOOS/GOARCH")
	manifest := flags.String("manifest", "krew/nstpl.yaml", "krew's manifest")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if _, err := semver.Parse(strings.TrimPrefix(r.Version, "v")); err != nil || !strings.HasPrefix(r.Version, "v") {
		return fmt.Errorf("the version is %q: write VERSION=v1.2.3", r.Version)
	}
	if strings.Contains(r.Version, "+") {
		return fmt.Errorf("the version is %q: leave out what follows +, since the tag of an image can't have it",
			r.Version)
	}
	var err error
	if r.commit, r.at, err = source(ctx); err != nil {
		return err
	}
	if r.license, err = os.ReadFile("LICENSE"); err != nil {
		return err
	}
	if err := errors.Join(os.MkdirAll(r.out, 0o755), r.clear()); err != nil {
		return err
	}
	all := strings.Split(*platforms, ",")
	if err := errors.Join(r.buildPlugin(ctx, all), r.buildOperator(ctx, all)); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), r.sums.Bytes(), 0o644); err != nil {
		return err
	}
	return r.writeManifest(*manifest)
}

// source is the commit that is built, if there is a repository, and its time, or what SOURCE_DATE_EPOCH says.
func source(ctx context.Context) (commit string, at time.Time, err error) {
	out, gitErr := exec.CommandContext(ctx, "git", "log", "-1", "--format=%H %ct").Output()
	commit, seconds, _ := strings.Cut(strings.TrimSpace(string(out)), " ")
	if epoch := os.Getenv("SOURCE_DATE_EPOCH"); epoch != "" {
		seconds = epoch
	} else if gitErr != nil {
		return "", time.Time{}, fmt.Errorf("ask git for the commit's time (or set SOURCE_DATE_EPOCH): %w", gitErr)
	}
	if changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain",
		"--untracked-files=no").Output(); err == nil && len(changes) > 0 {
		commit += "-dirty"
	}
	number, err := strconv.ParseInt(seconds, 10, 64)
	return commit, time.Unix(number, 0).UTC(), err
}

// clear takes away what an earlier release left in the folder, by its checksums.
func (r *release) clear() error {
	sums, err := os.ReadFile(filepath.Join(r.out, "SHA256SUMS"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(sums)) {
		_, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		if name == "" || name != filepath.Base(name) {
			continue
		}
		if err := os.Remove(filepath.Join(r.out, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// write writes a file that is handed out, and returns its checksum.
func (r *release) write(name string, content []byte) (string, error) {
	hash := sha256.Sum256(content)
	sum := hex.EncodeToString(hash[:])
	fmt.Fprintf(&r.sums, "%s  %s\n", sum, name) // what sha256sum -c reads
	return sum, os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}
