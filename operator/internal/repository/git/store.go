package git

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// store keeps fetched commits in a directory, each in one file with a pack. A file gets its name when it is complete:
// files with other names were left by a process that was killed. The commits may be those of another repository, if the
// URL was changed: their hashes determine their content.
type store struct {
	dir    string
	limits limits
	// wait waits until a pack may be read.
	wait func(context.Context) error
}

const (
	temporary = ".tmp"
	complete  = ".pack"
)

// openStore creates the directory if it does not exist, and removes unfinished files.
func openStore(dir string, l limits) (*store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, storageFailed(err)
	}
	s := &store{dir: dir, limits: l, wait: func(context.Context) error { return nil }}
	return s, s.clean(func(string) bool { return true })
}

func storageFailed(err error) error {
	return failf(StorageFailed, "the directory for fetched commits cannot be used: %s",
		printable(pathless(err).Error(), maxRemoteText)).Because(err)
}

// pathless returns the cause of an error of a file.
func pathless(err error) error {
	if at, ok := errors.AsType[*fs.PathError](err); ok {
		return at.Err
	}
	return err
}

// clean removes all unfinished files, and complete ones unless keep reports that they are needed.
func (s *store) clean(keep func(name string) bool) error {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return storageFailed(err)
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasSuffix(name, temporary) || strings.HasSuffix(name, complete) && !keep(name) {
			if err := os.Remove(filepath.Join(s.dir, name)); err != nil {
				return storageFailed(err)
			}
		}
	}
	return nil
}

// name returns the name of the file of a commit.
func (*store) name(commit string) string { return commit + complete }

// create returns a file for the pack of a commit that is about to be fetched.
func (s *store) create() (*os.File, error) {
	file, err := os.CreateTemp(s.dir, "fetch-*"+temporary)
	if err != nil {
		return nil, storageFailed(err)
	}
	return file, nil
}

// finish gives the file its final name.
func (s *store) finish(file *os.File, commit string) error {
	if err := os.Rename(file.Name(), filepath.Join(s.dir, s.name(commit))); err != nil {
		return storageFailed(err)
	}
	return nil
}

// keepOnly removes all commits except some.
func (s *store) keepOnly(commits ...string) error {
	return s.clean(func(name string) bool {
		for _, commit := range commits {
			if commit != "" && name == s.name(commit) {
				return true
			}
		}
		return false
	})
}

// load returns a commit that was fetched before, also by another process, or nil if there is none. It removes a file
// that cannot be read, and fails then: the caller may read now, and others must not wait for a download meanwhile.
func (s *store) load(ctx context.Context, commit string) (*Commit, error) {
	path := filepath.Join(s.dir, s.name(commit))
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, storageFailed(err)
	}
	if err := s.wait(ctx); err != nil {
		file.Close()
		return nil, err
	}
	loaded, err := readCommit(ctx, file, file, plumbing.NewHash(commit), s.limits)
	if err == nil {
		return loaded, nil
	}
	file.Close()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err := os.Remove(path); err != nil {
		return nil, storageFailed(err)
	}
	return nil, failf(StorageFailed, "the stored copy of the commit %s cannot be read and was removed: "+
		"the commit is fetched again", commit).Because(err)
}
