package hierarchy

import (
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"strings"
	"sync"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
)

// Load reads the tree at the root of a file system. name is the name of the root directory. The result has what is
// wrong with the tree, ordered by path and line. Load returns an error only if it cannot read a file, or a
// *TooLargeError. It reads one file at a time, and parses several at a time.
func Load(files fs.FS, name string) (*Result, error) { return LoadWithin(files, name, MaxTreeValues) }

// LoadWithin is Load with another limit than MaxTreeValues.
func LoadWithin(files fs.FS, name string, maxValues int) (*Result, error) {
	l := newLoader(name, maxValues)
	root, err := l.read(files)
	if err != nil {
		return nil, err
	}
	tree := &Tree{Root: root}
	tree.Visit(l.check)
	l.checkNames(tree)
	tree.Visit(l.checkSizes)
	l.collect(tree)
	l.checkBound(tree)
	return &Result{
		Tree: tree, Violations: l.violations.listed, ViolationCount: l.violations.count,
		Warnings: l.warnings.listed, WarningCount: l.warnings.count, Values: int(l.size.values.Load()),
	}, nil
}

// read reads all directories and files, and returns the root directory with the objects of the files.
func (l *loader) read(files fs.FS) (*Directory, error) {
	w := &walker{loader: l, files: files, unparsed: make(chan *file, parsers())}
	var parsing sync.WaitGroup
	for range parsers() {
		parsing.Go(func() {
			for f := range w.unparsed {
				f.parse(w)
			}
		})
	}
	root, err := w.directory(".", l.root, nil)
	close(w.unparsed)
	parsing.Wait()
	if err == nil && w.size.isExceeded() {
		err = &TooLargeError{w.size.maxValues}
	}
	if err != nil {
		return nil, err
	}
	for _, f := range w.parsed {
		f.directory.objects = append(f.directory.objects, f.objects...)
	}
	return root, nil
}

// parsers returns how many files are parsed at a time. More than a few would take much memory.
func parsers() int { return min(runtime.GOMAXPROCS(0), 4) }

// maxDepth is the number of levels of directories below the root.
const maxDepth = 64

// walker reads the directories and files of a tree.
type walker struct {
	*loader
	files fs.FS
	// unparsed takes the files that were read, and parsed has all of them in the order of the tree.
	unparsed chan *file
	parsed   []*file
	// large is locked while a large file is parsed.
	large sync.Mutex
}

// directory reads a directory and everything below it. Directories whose names begin with a dot, such as .git, are
// ignored, because they belong to tools.
func (w *walker) directory(at, name string, parent *Directory) (*Directory, error) {
	directory := &Directory{Name: name, Path: name, Parent: parent}
	if parent != nil {
		directory.Path = path.Join(parent.Path, name)
	}
	entries, err := fs.ReadDir(w.files, at)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		inside, shown := path.Join(at, entry.Name()),
			path.Join(directory.Path, strings.ToValidUTF8(entry.Name(), "\ufffd"))
		switch kind := entry.Type(); {
		case kind&fs.ModeSymlink != 0:
			w.violate("symlink", shown, 0, "it is a symbolic link, which may point outside of the tree",
				"replace it with the file or directory itself")
		case kind.IsDir() && strings.HasPrefix(entry.Name(), "."):
		case !utf8.ValidString(entry.Name()):
			w.invalidFileName(shown, kind.IsDir())
		case kind.IsDir() && strings.Count(inside, "/") >= maxDepth:
			w.violate("parse", shown, 0, fmt.Sprintf("directories are nested more than %d levels deep", maxDepth),
				"use fewer levels")
		case kind.IsDir():
			child, err := w.directory(inside, entry.Name(), directory)
			if err != nil {
				return nil, err
			}
			directory.Children = append(directory.Children, child)
		case w.size.isExceeded():
			return directory, nil
		case kind.IsRegular():
			f, err := w.open(inside, shown, directory)
			if err != nil {
				return nil, err
			}
			w.parsed = append(w.parsed, f)
			w.unparsed <- f
		}
	}
	return directory, nil
}

// invalidFileName reports a directory or file that an fs.FS cannot open because its name is not valid UTF-8.
func (l *loader) invalidFileName(shown string, directory bool) {
	switch {
	case directory:
		l.violate("name-dns", shown, 0,
			fmt.Sprintf("%q is not a valid namespace or policyspace name", path.Base(shown)), dnsRemedy)
	case hasManifestName(shown):
		l.violate("parse", shown, 0, "its name is not valid UTF-8, so it cannot be read", "rename it")
	default:
		l.warn(shown, 0, "its name is not valid UTF-8, so it is ignored")
	}
}

// collect sets the fields of the tree and its directories from the objects that were read.
func (l *loader) collect(tree *Tree) {
	tree.Visit(func(d *Directory) {
		for _, object := range d.objects {
			switch o := object.Object.(type) {
			case *corev1.Namespace:
				d.Namespace = o
			case *rbacv1.Role:
				d.Roles = append(d.Roles, o)
			case *rbacv1.RoleBinding:
				d.RoleBindings = append(d.RoleBindings, o)
			case *corev1.ResourceQuota:
				d.Quota = o
			default:
				if d.Parent == nil && object.Object != nil {
					tree.Cluster = append(tree.Cluster, object)
				}
			}
		}
	})
}
