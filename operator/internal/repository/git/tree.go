package git

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"

	"nstpl.dev/nstpl/operator/engine/files"
)

// treeEntry is a line of a tree object.
type treeEntry struct {
	name string
	mode string
	hash plumbing.Hash
}

// Modes of entries in tree objects. Files have others, too.
const (
	modeDirectory = "40000"
	modeSymlink   = "120000"
	modeSubmodule = "160000"
)

var errTree = errors.New("a tree object is malformed")

// parseTree parses a tree object. It does not check the order of the entries, but rejects names that cannot be those of
// files, and names that occur twice.
func parseTree(content []byte) ([]treeEntry, error) {
	var entries []treeEntry
	names := map[string]bool{}
	for len(content) > 0 {
		line, rest, found := bytes.Cut(content, []byte{0})
		mode, name, space := strings.Cut(string(line), " ")
		if !found || !space || len(rest) < len(plumbing.Hash{}) || mode == "" || strings.Trim(mode, "01234567") != "" {
			return nil, errTree
		}
		if !files.IsName(name) || names[name] {
			return nil, errTree
		}
		names[name] = true
		e := treeEntry{name: name, mode: strings.TrimLeft(mode, "0")}
		content = rest[copy(e.hash[:], rest):]
		entries = append(entries, e)
	}
	return entries, nil
}

// walker reads the directories of a tree.
type walker struct {
	ctx    context.Context
	commit *Commit
	*files.Checker
}

// readTree returns the directory at a path of the commit, with everything below it.
func (c *Commit) readTree(ctx context.Context, at string) (*files.Node, error) {
	w := &walker{ctx, c, files.NewChecker("the commit "+c.Hash, c.limits.tree)}
	hash, err := w.find(at)
	if err != nil {
		return nil, err
	}
	root := &files.Node{Name: ".", Mode: fs.ModeDir | 0o755}
	if err := w.fill(root, hash, ".", 0); err != nil {
		return nil, err
	}
	if err := w.Err(); err != nil {
		return nil, err
	}
	return root, nil
}

// find returns the hash of the tree object at a path.
func (w *walker) find(at string) (plumbing.Hash, error) {
	hash := w.commit.tree
	if at == "." {
		return hash, nil
	}
	for name := range strings.SplitSeq(at, "/") {
		entries, err := w.list(hash, at)
		if err != nil {
			return hash, err
		}
		i := slices.IndexFunc(entries, func(e treeEntry) bool { return e.name == name })
		shown := printable(at, maxRemoteText)
		switch {
		case i < 0:
			return hash, failf(NotFound, "the path %q does not exist in the commit %s", shown, w.commit.Hash)
		case entries[i].mode == modeSubmodule:
			return hash, failf(InvalidContent, "the path %q leads into a submodule in the commit %s: "+
				"use the repository of the submodule itself", shown, w.commit.Hash)
		case entries[i].mode == modeSymlink:
			return hash, failf(InvalidContent, "the path %q leads over a symbolic link in the commit %s: "+
				"write the path without it", shown, w.commit.Hash)
		case entries[i].mode != modeDirectory:
			return hash, failf(InvalidContent, "the path %q is or contains a file in the commit %s: "+
				"write the path of a directory", shown, w.commit.Hash)
		}
		hash = entries[i].hash
	}
	return hash, nil
}

// list reads a tree object. at is the path of the directory.
func (w *walker) list(hash plumbing.Hash, at string) ([]treeEntry, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, err
	}
	shown := printable(at, maxRemoteText)
	content, err := w.commit.objects.read(hash, plumbing.TreeObject, w.commit.limits.directory)
	if err != nil {
		return nil, failf(InvalidContent, "the directory %q of the commit %s cannot be read: "+
			"its object is missing, invalid or too large", shown, w.commit.Hash).Because(err)
	}
	entries, err := parseTree(content)
	if err != nil {
		return nil, failf(InvalidContent, "the directory %q of the commit %s has invalid or repeated names: "+
			"check the repository with git fsck", shown, w.commit.Hash).Because(err)
	}
	return entries, nil
}

// fill reads a directory and everything below it.
func (w *walker) fill(directory *files.Node, hash plumbing.Hash, at string, depth int) error {
	if err := w.Deep(depth); err != nil {
		return err
	}
	entries, err := w.list(hash, at)
	if err != nil {
		return err
	}
	// All are counted, also those that are left out, before the first directory is read: they stay in memory meanwhile.
	for range entries {
		if err := w.Count(); err != nil {
			return err
		}
	}
	for _, e := range entries {
		isDirectory := e.mode == modeDirectory || e.mode == modeSubmodule
		if isDirectory && files.IsIgnored(e.name) {
			continue
		}
		child, err := w.add(e, path.Join(at, e.name), depth)
		if err != nil {
			return err
		}
		if child != nil {
			directory.Children = append(directory.Children, child)
		}
	}
	directory.Sort()
	return nil
}

// add returns the node of an entry, or nil if the entry is refused.
func (w *walker) add(e treeEntry, at string, depth int) (*files.Node, error) {
	child := &files.Node{Name: e.name}
	switch e.mode {
	case modeDirectory:
		child.Mode = fs.ModeDir | 0o755
		return child, w.fill(child, e.hash, at, depth+1)
	case modeSubmodule:
		w.RefuseSubmodule(at)
		return nil, nil
	case modeSymlink:
		child.Mode = fs.ModeSymlink | 0o777
	case "100755":
		child.Mode = 0o755
	default:
		child.Mode = 0o644
	}
	child.Read = func() ([]byte, error) {
		return w.commit.objects.read(e.hash, plumbing.BlobObject, w.commit.limits.tree.File)
	}
	return child, w.measure(child, e.hash, at)
}

// measure sets the size of a file, and refuses files that are too large and pointers of LFS.
func (w *walker) measure(file *files.Node, hash plumbing.Hash, at string) error {
	e, err := w.commit.objects.stat(hash)
	switch {
	case errors.Is(err, errAbsent): // the server was asked to omit large files
		w.RefuseLarge(at, ", or the server did not send it")
		return nil
	case e.kind != plumbing.BlobObject && e.size <= w.commit.limits.tree.File:
		return failf(InvalidContent, "the file %q of the commit %s cannot be read: its object is not a file",
			printable(at, maxRemoteText), w.commit.Hash).Because(err)
	}
	file.Size = e.size
	usable, err := w.Measure(at, e.size)
	if usable && err == nil && e.isLFS && file.Mode.IsRegular() {
		w.RefusePointer(at)
	}
	return err
}
