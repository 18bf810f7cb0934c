package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// checksumsFile lists all files of a release, except itself and krew's manifest, in the format of sha256sum.
const checksumsFile = "SHA256SUMS"

// deleteEarlier deletes the files of an earlier release from the output folder. Its SHA256SUMS lists them. Other files
// are kept.
func (r *release) deleteEarlier() error {
	sums, err := os.ReadFile(filepath.Join(r.out, checksumsFile))
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

// write writes a file of the release, adds it to the list of checksums, and returns its checksum.
func (r *release) write(name string, content []byte) (string, error) {
	hash := sha256.Sum256(content)
	sum := hex.EncodeToString(hash[:])
	fmt.Fprintf(&r.checksums, "%s  %s\n", sum, name)
	return sum, os.WriteFile(filepath.Join(r.out, name), content, 0o644)
}
