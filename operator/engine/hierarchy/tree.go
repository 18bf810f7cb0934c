package hierarchy

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/engine/manifest"
)

// Tree is a folder of policies. It is complete only if loading it found no violations.
type Tree struct {
	Root *Directory
	// Cluster are the cluster-scoped objects, which only the root directory may contain.
	Cluster []Object
}

// Directory is a directory of the tree. It is a namespace if it contains a Namespace, and otherwise a policyspace.
type Directory struct {
	// Name is the name of the directory, and Path its path, which begins with the name of the root.
	Name, Path string
	Parent     *Directory
	Children   []*Directory
	// Namespace is nil if the directory is a policyspace.
	Namespace    *corev1.Namespace
	Roles        []*rbacv1.Role
	RoleBindings []*rbacv1.RoleBinding
	Quota        *corev1.ResourceQuota

	objects []Object
}

// Object is an object and its position in the tree.
type Object struct {
	runtime.Object
	// Path is the path of its file, which begins with the name of the root, and Line the line where the object begins.
	Path string
	Line int

	kind, name, namespace string
	// size is its size as JSON, in bytes.
	size int
	// lines has the lines of its fields while its file is read. positions remain, because the lines of a whole tree
	// would take more memory than its objects.
	lines     manifest.Lines
	positions positions
}

// positions are the lines of those fields that the rules about directories refer to.
type positions struct{ name, namespace, scopes int }

// withoutLines returns an object with its positions instead of its lines.
func (o Object) withoutLines() Object {
	o.positions = positions{
		o.lines.Of("metadata", "name"), o.lines.Of("metadata", "namespace"), o.lines.Of("spec", "scopes"),
	}
	o.lines = manifest.Lines{}
	return o
}

// describe returns the kind and the name of an object, for messages.
func (o Object) describe() string {
	if o.name == "" {
		return o.kind + " without a name"
	}
	return shorten(o.kind) + " " + shorten(o.name)
}

// Visit calls do for every directory: parents before their children, and siblings in ascending order of their names.
func (t *Tree) Visit(do func(*Directory)) { t.Root.visit(do) }

func (d *Directory) visit(do func(*Directory)) {
	do(d)
	children := slices.Clone(d.Children)
	slices.SortFunc(children, func(a, b *Directory) int { return strings.Compare(a.Name, b.Name) })
	for _, child := range children {
		child.visit(do)
	}
}

// Lineage returns the directories from the root down to this one, including itself.
func (d *Directory) Lineage() []*Directory {
	var line []*Directory
	for at := d; at != nil; at = at.Parent {
		line = append(line, at)
	}
	slices.Reverse(line)
	return line
}
