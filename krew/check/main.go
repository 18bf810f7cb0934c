// Command check checks a krew manifest, and the archives that it names, against krew's rules: check MANIFEST DIR. DIR
// is the folder of the archives.
package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"nstpl.dev/nstpl/krew/manifest"
	"nstpl.dev/nstpl/krew/release/archive"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: check MANIFEST DIR")
		os.Exit(2)
	}
	if err := check(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stdout, "%s and its archives follow krew's rules\n", os.Args[1])
}

// check returns all problems of a manifest and of its archives, joined.
func check(file, dir string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	plugin, err := manifest.Parse(data)
	if err != nil {
		return err
	}
	problems := plugin.Check(strings.TrimSuffix(filepath.Base(file), ".yaml"))
	for _, platform := range plugin.Spec.Platforms {
		if err := checkArchive(platform, dir); err != nil {
			problems = append(problems, fmt.Errorf("%s: %w", path.Base(platform.URI), err))
		}
	}
	return errors.Join(problems...)
}

// checkArchive checks that an archive has the checksum in the manifest and contains all files that krew installs.
func checkArchive(platform manifest.Platform, dir string) error {
	name := path.Base(platform.URI)
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != platform.SHA256 {
		return fmt.Errorf("its sha256 is %x, but the manifest has %s", sum, platform.SHA256)
	}
	names, err := archive.Names(name, content)
	if err != nil {
		return err
	}
	for _, wanted := range []string{platform.Bin, "LICENSE"} {
		if !slices.Contains(names, wanted) {
			return fmt.Errorf("it does not contain %s, only %q", wanted, names)
		}
	}
	for _, file := range platform.Files {
		if !slices.Contains(names, file.From) {
			return fmt.Errorf("it does not contain %s, only %q", file.From, names)
		}
	}
	return nil
}
