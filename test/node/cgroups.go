package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// controlGroup is above all that run the node's pods.
const controlGroup = "nstpl-node"

// controlGroups are its folders: one for each hierarchy, or the one of version 2.
func controlGroups() []string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.controllers")); err == nil {
		return []string{filepath.Join(root, controlGroup)}
	}
	hierarchies, _ := filepath.Glob(filepath.Join(root, "*", "cgroup.procs")) // the pattern is right
	var found []string
	for _, hierarchy := range hierarchies {
		found = append(found, filepath.Join(filepath.Dir(hierarchy), controlGroup))
	}
	return found
}

func makeControlGroups() error {
	var errs []error
	for _, group := range controlGroups() {
		errs = append(errs, os.MkdirAll(group, 0o755))
	}
	return errors.Join(errs...)
}

// removeControlGroups can do so once no process is in them.
func removeControlGroups() error {
	var errs []error
	for _, group := range controlGroups() {
		var below []string
		err := filepath.WalkDir(group, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				below = append(below, path)
			}
			return err
		})
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		errs = append(errs, err)
		for _, path := range slices.Backward(below) {
			errs = append(errs, os.Remove(path))
		}
	}
	return errors.Join(errs...)
}
