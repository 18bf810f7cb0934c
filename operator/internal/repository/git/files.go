package git

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
)

// Files returns the directory at a path of the commit, such as foo-corp, or the root for "" and ".". The directories
// are read at once, and the contents of files when they are opened. Symbolic links have fs.ModeSymlink, and are not
// followed. Directories whose names begin with a dot are left out.
//
// Files returns RefusedFiles if the tree has submodules, pointers of Git LFS or files of more than 8 MiB, and an Error
// if the path is not a directory or the tree is too large.
//
// The result implements fs.ReadDirFS, fs.ReadFileFS and fs.StatFS, and is safe for concurrent use.
func (c *Commit) Files(at string) (fs.FS, error) {
	clean := strings.Trim(path.Clean("/"+at), "/")
	if strings.ContainsRune(at, 0) || strings.Contains("/"+at+"/", "/../") {
		return nil, failf(InvalidConfiguration, "the path %q contains .. or a control character: "+
			"write the path of a directory, from the root of the repository", printable(at, maxRemoteText))
	}
	if clean == "" {
		clean = "."
	}
	root, err := c.readTree(clean)
	if err != nil {
		return nil, err
	}
	return &files{commit: c, root: root}, nil
}

// files is the fs.FS of a tree.
type files struct {
	commit *Commit
	root   *node
}

var (
	_ fs.ReadDirFS  = (*files)(nil)
	_ fs.ReadFileFS = (*files)(nil)
	_ fs.StatFS     = (*files)(nil)
)

// find returns the node with a name.
func (f *files) find(op, name string) (*node, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	at := f.root
	if name == "." {
		return at, nil
	}
	for part := range strings.SplitSeq(name, "/") {
		if at = at.child(part); at == nil {
			return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
		}
	}
	return at, nil
}

// Open opens a file or directory. It reads the whole content of a file.
func (f *files) Open(name string) (fs.File, error) {
	n, err := f.find("open", name)
	if err != nil {
		return nil, err
	}
	opened := &openFile{info: info{n, f.commit.When}, path: name}
	if n.mode.IsDir() {
		return &openDirectory{openFile: opened, left: f.entries(n)}, nil
	}
	content, err := f.read("open", name, n)
	if err != nil {
		return nil, err
	}
	opened.Reader.Reset(content)
	return opened, nil
}

// read returns the content of a file. That of a symbolic link is its target.
func (f *files) read(op, name string, n *node) ([]byte, error) {
	if n.mode.IsDir() {
		return nil, &fs.PathError{Op: op, Path: name, Err: errors.New("it is a directory")}
	}
	content, err := f.commit.objects.read(n.hash, plumbing.BlobObject, f.commit.limits.file)
	if err != nil {
		return nil, &fs.PathError{Op: op, Path: name, Err: err}
	}
	return content, nil
}

// ReadFile returns the content of a file.
func (f *files) ReadFile(name string) ([]byte, error) {
	n, err := f.find("read", name)
	if err != nil {
		return nil, err
	}
	content, err := f.read("read", name, n)
	return slices.Clone(content), err // callers of fs.ReadFile may change it
}

// Stat describes a file or directory.
func (f *files) Stat(name string) (fs.FileInfo, error) {
	n, err := f.find("stat", name)
	if err != nil {
		return nil, err
	}
	return info{n, f.commit.When}, nil
}

// ReadDir lists a directory by name.
func (f *files) ReadDir(name string) ([]fs.DirEntry, error) {
	n, err := f.find("readdir", name)
	if err != nil {
		return nil, err
	}
	if !n.mode.IsDir() {
		return nil, &fs.PathError{Op: "readdir", Path: name, Err: errors.New("it is not a directory")}
	}
	return f.entries(n), nil
}

func (f *files) entries(n *node) []fs.DirEntry {
	entries := make([]fs.DirEntry, len(n.children))
	for i, child := range n.children {
		entries[i] = fs.FileInfoToDirEntry(info{child, f.commit.When})
	}
	return entries
}

// info describes a node. All files have the time of the commit.
type info struct {
	node *node
	when time.Time
}

func (i info) Name() string       { return i.node.name }
func (i info) Size() int64        { return i.node.size }
func (i info) Mode() fs.FileMode  { return i.node.mode }
func (i info) ModTime() time.Time { return i.when }
func (i info) IsDir() bool        { return i.node.mode.IsDir() }
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
