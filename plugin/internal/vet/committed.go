package vet

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"nstpl.dev/nstpl/operator/engine/files"
)

// checkCommitted checks the files in the directory of a tree by the rules by which nstpl-sync refuses a commit, whatever
// the files contain. Root is the name of the tree.
func (r *result) checkCommitted(dir, root string) error {
	opened, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	w := &walker{opened.FS(), files.NewChecker(root, files.DefaultLimits())}
	err = errors.Join(w.walk(), opened.Close())
	if limit, isLimit := errors.AsType[*files.Error](err); isLimit {
		r.Violations = append(r.Violations, finding{Rule: ruleFile, Path: root, Message: limit.Message})
		err = nil
	}
	refused, _ := errors.AsType[files.RefusedFiles](w.Err())
	for _, file := range refused {
		r.Violations = append(r.Violations, finding{
			Rule: ruleFile, Path: path.Join(root, file.Path), Message: file.Message, Remedy: file.Remedy,
		})
	}
	return err
}

// walker reads the names and sizes of the files of a tree.
type walker struct {
	tree fs.FS
	*files.Checker
}

// walk checks everything in the tree. Git commits no directory with the name .git, which belongs to a clone.
func (w *walker) walk() error {
	return fs.WalkDir(w.tree, ".", func(at string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || at == ".":
			return err
		case entry.Name() == ".git" && entry.IsDir():
			return fs.SkipDir
		case entry.Name() == ".git":
			return nil
		}
		if err := w.Count(); err != nil {
			return err
		}
		switch {
		case entry.IsDir() && files.IsIgnored(entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			return w.directory(at)
		case entry.Type().IsRegular():
			return w.file(at, entry)
		}
		return nil
	})
}

// directory refuses a directory that is a submodule, and fails if it is too deep in the tree.
func (w *walker) directory(at string) error {
	if _, err := fs.Lstat(w.tree, path.Join(at, ".git")); err == nil {
		w.RefuseSubmodule(at)
		return fs.SkipDir
	}
	return w.Deep(strings.Count(at, "/") + 1)
}

// file refuses a file that is too large, or a pointer of Git LFS.
func (w *walker) file(at string, entry fs.DirEntry) error {
	info, err := entry.Info()
	if err != nil {
		return err
	}
	isUsable, err := w.Measure(at, info.Size())
	if err != nil || !isUsable || info.Size() > files.MaxPointer {
		return err
	}
	file, err := w.tree.Open(at)
	if err != nil {
		return err
	}
	content, err := io.ReadAll(io.LimitReader(file, files.MaxPointer))
	if files.IsPointer(content, info.Size()) {
		w.RefusePointer(at)
	}
	return errors.Join(err, file.Close())
}
