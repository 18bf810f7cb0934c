package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

const controlGroupRoot = "/sys/fs/cgroup"

// unified reports whether the machine has the single hierarchy of control groups version 2.
func unified() bool {
	_, err := os.Stat(filepath.Join(controlGroupRoot, "cgroup.controllers"))
	return err == nil
}

// controlGroups returns the folders of the parent control group of the node's pods: one for each hierarchy, or one for
// version 2.
func (p *slot) controlGroups() []string {
	if unified() {
		return []string{filepath.Join(controlGroupRoot, p.name())}
	}
	hierarchies, _ := filepath.Glob(filepath.Join(controlGroupRoot, "*", "cgroup.procs")) // the pattern is valid
	var found []string
	for _, hierarchy := range hierarchies {
		found = append(found, filepath.Join(filepath.Dir(hierarchy), p.name()))
	}
	return found
}

func (p *slot) makeControlGroups() error {
	var errs []error
	if unified() { // only controllers that are delegated can limit pods
		errs = append(errs,
			os.WriteFile(filepath.Join(controlGroupRoot, "cgroup.subtree_control"),
				[]byte("+cpu +cpuset +memory +pids"), 0o644))
	}
	for _, group := range p.controlGroups() {
		errs = append(errs, os.MkdirAll(group, 0o755))
	}
	return errors.Join(errs...)
}

// removeControlGroups removes the folders. It fails while processes are in the groups.
func (p *slot) removeControlGroups() error {
	var errs []error
	for _, group := range p.controlGroups() {
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
