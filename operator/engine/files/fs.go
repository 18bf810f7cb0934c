package files

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"
)

// Node is a file or directory of a tree.
type Node struct {
	Name string
	// Mode is a directory, a regular file or a symbolic link.
	Mode fs.FileMode
	// Size is that of the content of a file, in bytes.
	Size int64
	// Children are the files and directories in a directory, by name.
	Children []*Node
	// Read returns the content of a file, and the target of a symbolic link.
	Read func() ([]byte, error)
}

// Sort sorts the children of a directory.
func (n *Node) Sort() {
	slices.SortFunc(n.Children, func(a, b *Node) int { return strings.Compare(a.Name, b.Name) })
}

// child returns the child with a name, or nil.
func (n *Node) child(name string) *Node {
	at, found := slices.BinarySearchFunc(n.Children, name, func(n *Node, name string) int {
		return strings.Compare(n.Name, name)
	})
	if !found {
		return nil
	}
	return n.Children[at]
}

// NewFS returns the files below a directory, whose children are sorted in all directories. All files have the same
// time. The contents of files are read when they are opened. Symbolic links have fs.ModeSymlink, and are not followed.
//
// The result is safe for concurrent use if the Read functions are.
func NewFS(root *Node, when time.Time) fs.FS { return &files{root: root, when: when} }

type files struct {
	root *Node
	when time.Time
}

func (f *files) find(name string) (*Node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	at := f.root
	if name == "." {
		return at, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if at = at.child(part); at == nil {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
		}
	}
	return at, nil
}

// Open opens a file or directory. It reads the whole content of a file.
func (f *files) Open(name string) (fs.File, error) {
	n, err := f.find(name)
	if err != nil {
		return nil, err
	}
	opened := &openFile{info: info{n, f.when}, path: name}
	if n.Mode.IsDir() {
		return &openDirectory{openFile: opened, left: f.entries(n)}, nil
	}
	content, err := n.Read()
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	opened.Reader.Reset(content)
	return opened, nil
}

func (f *files) entries(n *Node) []fs.DirEntry {
	entries := make([]fs.DirEntry, len(n.Children))
	for i, child := range n.Children {
		entries[i] = fs.FileInfoToDirEntry(info{child, f.when})
	}
	return entries
}

// info describes a node. All files have the time of the commit.
type info struct {
	node *Node
	when time.Time
}

func (i info) Name() string       { return i.node.Name }
func (i info) Size() int64        { return i.node.Size }
func (i info) Mode() fs.FileMode  { return i.node.Mode }
func (i info) ModTime() time.Time { return i.when }
func (i info) IsDir() bool        { return i.node.Mode.IsDir() }
func (i info) Sys() any           { return nil }

type openFile struct {
	bytes.Reader
	info info
	path string
}

func (o *openFile) Stat() (fs.FileInfo, error) { return o.info, nil }
func (o *openFile) Close() error               { return nil }

type openDirectory struct {
	*openFile
	left []fs.DirEntry
}

// Read fails, because a directory has no content.
func (d *openDirectory) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: d.path, Err: errors.New("it is a directory")}
}

// ReadDir returns the next n entries, or all that are left if n is not positive.
func (d *openDirectory) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(d.left)
	} else if len(d.left) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(d.left))
	entries := d.left[:n:n]
	d.left = d.left[n:]
	return entries, nil
}
