package inventory

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Scope says which objects concern a tree.
type Scope struct {
	// Tree is the name of the tree.
	Tree string
	// Declared are the objects that the tree declares.
	Declared map[ID]*unstructured.Unstructured
	// Created are the UIDs of the objects that were created for the tree, and Pending the objects that may still be
	// created for an earlier commit of it.
	Created map[types.UID]bool
	Pending map[ID]bool
}

// NewScope returns the scope of a tree.
func NewScope(
	tree string, declared []*unstructured.Unstructured, created map[types.UID]bool, pending map[ID]bool,
) Scope {
	s := Scope{
		Tree: tree, Declared: make(map[ID]*unstructured.Unstructured, len(declared)), Created: created,
		Pending: pending,
	}
	for _, object := range declared {
		s.Declared[render.IDOf(object)] = object
	}
	return s
}

// Concerns reports whether a new plan for the tree may differ from the plan before an object changed. Before is nil if
// the object was created, and after is nil if it was deleted. A policyspace in Used may be deleted once a namespace of
// others has left it: Concerns does not report that.
func (s Scope) Concerns(before, after *unstructured.Unstructured) bool {
	switch {
	case before == nil:
		return s.has(after)
	case mayHaveSet(before, after):
		return true
	case after == nil || isBeingDeleted(before) != isBeingDeleted(after):
		return s.has(before)
	}
	isOtherTree := before.GetLabels()[v1alpha1.TreeLabel] != after.GetLabels()[v1alpha1.TreeLabel]
	declared := s.Declared[render.IDOf(after)]
	if declared == nil {
		return isAdoptedBy(before, s.Tree) != isAdoptedBy(after, s.Tree) ||
			s.Created[after.GetUID()] && (isProtected(before) != isProtected(after) || isOtherTree)
	}
	left, _ := withoutTemplateValues(declared, after, isAnyDeclared)
	return !IsInForce(left, after) || !IsInForce(declared, after) && hasOtherMetadata(before, after) ||
		consents(before) != consents(after) || Delayed(before) != Delayed(after) || isOtherTree
}

// has reports whether an object belongs to the tree or should.
func (s Scope) has(object *unstructured.Unstructured) bool {
	id := render.IDOf(object)
	return s.Declared[id] != nil || s.Created[object.GetUID()] || s.Pending[id] || isAdoptedBy(object, s.Tree)
}

// isAnyDeclared takes every recorded value for one that its template declares.
func isAnyDeclared(render.MetadataKey, populate.RecordedValue) bool { return true }

// hasOtherMetadata reports whether labels or annotations changed.
func hasOtherMetadata(before, after *unstructured.Unstructured) bool {
	return !maps.Equal(before.GetLabels(), after.GetLabels()) ||
		!maps.Equal(before.GetAnnotations(), after.GetAnnotations())
}
