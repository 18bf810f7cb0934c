package git

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
)

// node is a file or directory of the tree.
type node struct {
	name     string
	mode     fs.FileMode
	hash     plumbing.Hash
	size     int64
	children []*node // of a directory, by name
}

// child returns the child with a name, or nil.
func (n *node) child(name string) *node {
	at, found := slices.BinarySearchFunc(n.children, name, func(n *node, name string) int {
		return strings.Compare(n.name, name)
	})
	if !found {
		return nil
	}
	return n.children[at]
}

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
		if name == "" || name == "." || name == ".." || len(name) > 255 || strings.Contains(name, "/") || names[name] {
			return nil, errTree
		}
		names[name] = true
		e := treeEntry{name: name, mode: strings.TrimLeft(mode, "0")}
		content = rest[copy(e.hash[:], rest):]
		entries = append(entries, e)
	}
	return entries, nil
}

// walker reads the directories of a tree and counts what is in them.
type walker struct {
	commit  *Commit
	count   int
	bytes   int64
	refused RefusedFiles
}

// readTree returns the directory at a path of the commit, with everything below it.
func (c *Commit) readTree(at string) (*node, error) {
	w := &walker{commit: c}
	hash, err := w.find(at)
	if err != nil {
		return nil, err
	}
	root := &node{name: ".", mode: fs.ModeDir | 0o755, hash: hash}
	if err := w.fill(root, ".", 0); err != nil {
		return nil, err
	}
	if len(w.refused) > 0 {
		slices.SortStableFunc(w.refused, func(a, b RefusedFile) int { return strings.Compare(a.Path, b.Path) })
		return nil, w.refused
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
	shown := printable(at, maxRemoteText)
	content, err := w.commit.objects.read(hash, plumbing.TreeObject, w.commit.limits.directory)
	if err != nil {
		return nil, failf(InvalidContent, "the directory %q of the commit %s cannot be read: "+
			"its object is missing, invalid or too large", shown, w.commit.Hash).because(err)
	}
	entries, err := parseTree(content)
	if err != nil {
		return nil, failf(InvalidContent, "the directory %q of the commit %s has invalid or repeated names: "+
			"check the repository with git fsck", shown, w.commit.Hash).because(err)
	}
	return entries, nil
}

// fill reads a directory and everything below it. Directories whose names begin with a dot are left out: they belong
// to tools, and the hierarchy ignores them.
func (w *walker) fill(directory *node, at string, depth int) error {
	if depth > w.commit.limits.depth {
		return failf(LimitExceeded, "directories are nested more than %d levels deep in the commit %s",
			w.commit.limits.depth, w.commit.Hash)
	}
	entries, err := w.list(directory.hash, at)
	if err != nil {
		return err
	}
	for _, e := range entries {
		isDirectory := e.mode == modeDirectory || e.mode == modeSubmodule
		if isDirectory && strings.HasPrefix(e.name, ".") {
			continue
		}
		if w.count++; w.count > w.commit.limits.files {
			return failf(LimitExceeded, "the tree of the commit %s has more than %d files and directories: "+
				"select a smaller path", w.commit.Hash, w.commit.limits.files)
		}
		child, err := w.add(e, path.Join(at, e.name), depth)
		if err != nil {
			return err
		}
		if child != nil {
			directory.children = append(directory.children, child)
		}
	}
	slices.SortFunc(directory.children, func(a, b *node) int { return strings.Compare(a.name, b.name) })
	return nil
}

// add returns the node of an entry, or nil if the entry is refused.
func (w *walker) add(e treeEntry, at string, depth int) (*node, error) {
	child := &node{name: e.name, hash: e.hash}
	switch e.mode {
	case modeDirectory:
		child.mode = fs.ModeDir | 0o755
		return child, w.fill(child, at, depth+1)
	case modeSubmodule:
		w.refuse(at, "it is a submodule, whose files are in another repository",
			"replace it with the files themselves")
		return nil, nil
	case modeSymlink:
		child.mode = fs.ModeSymlink | 0o777
	case "100755":
		child.mode = 0o755
	default:
		child.mode = 0o644
	}
	return child, w.measure(child, at)
}

func (w *walker) refuse(at, message, remedy string) {
	shown := printable(at, maxRemoteText)
	w.refused = append(w.refused, RefusedFile{Path: shown, Message: message, Remedy: remedy})
}

// measure sets the size of a file, and refuses files that are too large and pointers of LFS.
func (w *walker) measure(file *node, at string) error {
	c := w.commit
	e, err := c.objects.stat(file.hash)
	switch {
	case errors.Is(err, errAbsent): // the server was asked to omit large files
		w.refuse(at, fmt.Sprintf("it is larger than %s, or the server did not send it", size(c.limits.file)),
			"move it out of the tree")
		return nil
	case e.size > c.limits.file:
		w.refuse(at, fmt.Sprintf("it is larger than %s", size(c.limits.file)), "move it out of the tree")
		return nil
	case e.kind != plumbing.BlobObject:
		return failf(InvalidContent, "the file %q of the commit %s cannot be read: its object is not a file",
			printable(at, maxRemoteText), c.Hash).because(err)
	}
	file.size = e.size
	if w.bytes += e.size; w.bytes > c.limits.tree {
		return failf(LimitExceeded, "the files in the tree of the commit %s have more than %s together: "+
			"select a smaller path", c.Hash, size(c.limits.tree))
	}
	if e.isLFS && file.mode.IsRegular() {
		w.refuse(at, "it is a pointer to a file in Git LFS, and not the file itself",
			"remove it from LFS: git lfs untrack, then git add --renormalize")
	}
	return nil
}

// size formats a number of bytes.
func size(bytes int64) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%d MiB", bytes>>20)
	case bytes >= 1<<10:
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d bytes", bytes)
}
