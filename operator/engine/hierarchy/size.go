package hierarchy

import (
	"fmt"
	"slices"
	"sync/atomic"
)

// The size of manifests at most.
const (
	// MaxTreeValues is how many values all manifests of a tree have, and maxDocumentValues how many one document has.
	MaxTreeValues     = 2_000_000
	maxDocumentValues = 200_000
	// maxTreeSize is how many bytes all manifests have as JSON.
	maxTreeSize = 16 << 20
	// maxShared is the size in bytes of the largest file that is parsed beside others.
	maxShared = 16 << 10
)

// BytesPerValue is how many bytes of memory a process that follows a tree needs for each of its values: half of them to
// load and compile it, and half for the tree that is in force, the caches and the program.
const BytesPerValue = 600

// TooLargeError reports that the manifests of a tree are too large together.
type TooLargeError struct {
	// Values is how many values they may have.
	Values int
}

func (e *TooLargeError) Error() string {
	return fmt.Sprintf("the manifests of the tree have more than %d MiB, or more than %d values, of which a "+
		"field has two, together: divide the tree", maxTreeSize>>20, e.Values)
}

// treeSize adds up the manifests of a tree. It is safe for concurrent use.
type treeSize struct {
	maxValues     int
	bytes, values atomic.Int64
}

// add adds a document and reports whether the tree is not too large yet.
func (s *treeSize) add(bytes, values int) bool {
	s.bytes.Add(int64(bytes))
	s.values.Add(int64(values))
	return !s.isExceeded()
}

// isExceeded reports whether the tree is too large.
func (s *treeSize) isExceeded() bool {
	return s.bytes.Load() > maxTreeSize || s.values.Load() > int64(s.maxValues)
}

// The size of a template in bytes at most: for kubectl apply, which stores the whole object in an annotation, and for
// etcd.
const (
	maxApplied = 200_000
	maxStored  = 1_200_000
)

// checkSizes reports a directory whose objects do not fit into one template.
func (l *loader) checkSizes(d *Directory) {
	size := 0
	isNamespace := slices.ContainsFunc(d.objects, func(o Object) bool { return o.kind == kindNamespace })
	for _, object := range d.objects {
		if object.kind == kindRole || object.kind == kindRoleBinding || object.kind == kindResourceQuota &&
			isNamespace {
			size += object.size
		}
	}
	switch {
	case size > maxStored:
		l.violate("size", d.Path, 0,
			fmt.Sprintf("its objects have %d bytes in total, more than the %d that fit into a template", size,
				maxStored),
			"distribute them over several directories")
	case size > maxApplied:
		l.warn(d.Path, 0,
			fmt.Sprintf("its objects have %d bytes in total: apply the output of hydrate with kubectl apply --server-side",
				size))
	}
}

// maxBound is how many ClusterRoles the operator may bind for a tree at most. The API server stores its permission to
// bind all of them, and those of other trees, in one ClusterRole.
const maxBound = 500

// checkBound reports a tree whose RoleBindings name too many ClusterRoles.
func (l *loader) checkBound(tree *Tree) {
	if bound := len(tree.boundRoles()); bound > maxBound {
		l.violate("size", tree.Root.Path, 0,
			fmt.Sprintf("its RoleBindings name %d ClusterRoles besides admin, edit and view, more than the allowed %d",
				bound, maxBound),
			"bind fewer ClusterRoles")
	}
}
