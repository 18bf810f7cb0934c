package node

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

const controlGroupRoot = "/sys/fs/cgroup"

// unified tells whether there is one hierarchy of control groups, as version 2 has it.
func unified() bool {
	_, err := os.Stat(filepath.Join(controlGroupRoot, "cgroup.controllers"))
	return err == nil
}

// controlGroups are the folders of the control group that is above all that run the node's pods: one for each
// hierarchy, or the one of version 2.
func (p *place) controlGroups() []string {
	if unified() {
		return []string{filepath.Join(controlGroupRoot, p.name())}
	}
	hierarchies, _ := filepath.Glob(filepath.Join(controlGroupRoot, "*", "cgroup.procs")) // the pattern is right
	var found []string
	for _, hierarchy := range hierarchies {
		found = append(found, filepath.Join(filepath.Dir(hierarchy), p.name()))
	}
	return found
}

func (p *place) makeControlGroups() error {
	var errs []error
	if unified() { // what is not handed down can't be limited
		errs = append(errs,
			os.WriteFile(filepath.Join(controlGroupRoot, "cgroup.subtree_control"),
				[]byte("+cpu +cpuset +memory +pids"), 0o644))
	}
	for _, group := range p.controlGroups() {
		errs = append(errs, os.MkdirAll(group, 0o755))
	}
	return errors.Join(errs...)
}

// removeControlGroups removes them. It can do so once no process is in them.
func (p *place) removeControlGroups() error {
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
