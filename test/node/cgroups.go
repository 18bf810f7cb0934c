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

const controlGroupRoot = "/sys/fs/cgroup"

// unified tells whether there is one hierarchy of control groups, as version 2 has it.
func unified() bool {
	_, err := os.Stat(filepath.Join(controlGroupRoot, "cgroup.controllers"))
	return err == nil
}

// controlGroups are its folders: one for each hierarchy, or the one of version 2.
func controlGroups() []string {
	if unified() {
		return []string{filepath.Join(controlGroupRoot, controlGroup)}
	}
	hierarchies, _ := filepath.Glob(filepath.Join(controlGroupRoot, "*", "cgroup.procs")) // the pattern is right
	var found []string
	for _, hierarchy := range hierarchies {
		found = append(found, filepath.Join(filepath.Dir(hierarchy), controlGroup))
	}
	return found
}

func makeControlGroups() error {
	var errs []error
	if unified() { // what is not handed down can't be limited
		errs = append(errs, os.WriteFile(filepath.Join(controlGroupRoot, "cgroup.subtree_control"), []byte("+cpu +cpuset +memory +pids"), 0o644))
	}
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
