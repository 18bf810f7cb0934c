// Package hierarchy reads a folder of policies as a tree of policyspaces and namespaces, holds it against the rules of
// the "Git User Guide", and tells what each namespace inherits. It reads from an fs.FS and from nothing else.
package hierarchy

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Tree is a folder as it was read. It means what it says only if there were no violations.
type Tree struct {
	Root *Directory
	// Cluster are the cluster-level policies, which are immediately in the root.
	Cluster []Object
}

// Directory is a policyspace or a namespace.
type Directory struct {
	// Name of the directory, and Path from the tree's parent, which begins with the root's name.
	Name, Path string
	Parent     *Directory
	Children   []*Directory
	// Namespace makes the directory one; a policyspace has none.
	Namespace    *corev1.Namespace
	Roles        []*rbacv1.Role
	RoleBindings []*rbacv1.RoleBinding
	Quota        *corev1.ResourceQuota

	objects []Object
}

// Object is an object with where it was found.
type Object struct {
	runtime.Object
	// Path of the file from the tree's parent, and Line in it where the object begins.
	Path string
	Line int

	kind, name, namespace string
	lines                 lines
	// size of it as JSON, in bytes.
	size int
}

// Violation is a rule that a tree breaks.
type Violation struct {
	Rule string `json:"rule"`
	// Path from the tree's parent, and Line, which is 0 where it is about a directory.
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Message string `json:"message"`
	Remedy  string `json:"remedy,omitempty"`
}

// Warning is about something that a tree may have, and that may not do what it seems to.
type Warning struct {
	Path    string `json:"path"`
	Line    int    `json:"line"`
	Message string `json:"message"`
}

// Result is what came of reading a tree.
type Result struct {
	Tree       *Tree
	Violations []Violation
	Warnings   []Warning
}

// Load reads the tree at the root of a file system. name is that of the root policyspace. An error says that it could
// not be read; everything that is wrong with what was read is in the result, ordered by path and line.
func Load(files fs.FS, name string) (*Result, error) {
	l := &loader{files: files, root: name, result: &Result{}}
	root, err := l.directory(".", name, nil)
	if err != nil {
		return nil, err
	}
	l.result.Tree = &Tree{Root: root}
	l.check(root)
	l.checkNames(root)
	l.checkSizes(root)
	l.collect(l.result.Tree)
	slices.SortStableFunc(l.result.Violations, func(a, b Violation) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	slices.SortStableFunc(l.result.Warnings, func(a, b Warning) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), cmp.Compare(a.Line, b.Line))
	})
	return l.result, nil
}

type loader struct {
	files  fs.FS
	root   string
	result *Result
}

func (l *loader) violate(rule, path string, line int, message, remedy string) {
	l.result.Violations = append(l.result.Violations,
		Violation{Rule: rule, Path: path, Line: line, Message: message, Remedy: remedy})
}

func (l *loader) warn(path string, line int, message string) {
	l.result.Warnings = append(l.result.Warnings, Warning{path, line, message})
}

// maxDepth is how deep directories may be in one another.
const maxDepth = 64

// directory reads a directory and all in it. Directories whose names begin with a dot are tools' own, such as .git.
func (l *loader) directory(at, name string, parent *Directory) (*Directory, error) {
	directory := &Directory{Name: name, Path: name, Parent: parent}
	if parent != nil {
		directory.Path = path.Join(parent.Path, name)
	}
	entries, err := fs.ReadDir(l.files, at)
	if err != nil {
		return nil, err
	}
	for _, entry := range entries {
		inside, shown := path.Join(at, entry.Name()),
			path.Join(directory.Path, strings.ToValidUTF8(entry.Name(), "\ufffd"))
		switch kind := entry.Type(); {
		case kind&fs.ModeSymlink != 0:
			l.violate("symlink", shown, 0, "it is a symbolic link, which could lead anywhere",
				"put the file or directory itself there")
		case kind.IsDir() && strings.HasPrefix(entry.Name(), "."):
		case !utf8.ValidString(entry.Name()):
			l.unreadable(shown, kind.IsDir())
		case kind.IsDir() && strings.Count(inside, "/") >= maxDepth:
			l.violate("parse", shown, 0, "directories are nested too deep to be read", "have fewer levels")
		case kind.IsDir():
			child, err := l.directory(inside, entry.Name(), directory)
			if err != nil {
				return nil, err
			}
			directory.Children = append(directory.Children, child)
		case kind.IsRegular():
			objects, err := l.file(inside, shown)
			if err != nil {
				return nil, err
			}
			directory.objects = append(directory.objects, objects...)
		}
	}
	return directory, nil
}

// unreadable says of what is called in no text, and can't be opened therefore, what is lost by that.
func (l *loader) unreadable(shown string, directory bool) {
	switch {
	case directory:
		l.violate("name-dns", shown, 0,
			fmt.Sprintf("%q can't be the name of a namespace or policyspace", path.Base(shown)), dnsRemedy)
	case hasManifestName(shown):
		l.violate("parse", shown, 0, "its name is not UTF-8, so that it can't be read", "give it another name")
	default:
		l.warn(shown, 0, "its name is not UTF-8, so that it is not looked at")
	}
}

// collect sorts the objects of all directories by what they are.
func (l *loader) collect(tree *Tree) {
	var visit func(*Directory)
	visit = func(d *Directory) {
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
		for _, child := range d.Children {
			visit(child)
		}
	}
	visit(tree.Root)
}
