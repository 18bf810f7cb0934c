package repository

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
)

// accept records the objects that the tree takes over: it declares them, they have its label, and they were created for
// another tree, which no longer declares them. So a later commit takes them away, as the other tree would have. It
// returns the names of the PolicyRepositories of such trees, which keep the objects in their records until this one has
// stored its own, and of those that keep other objects with its label until its tree was read, also ones that it took
// over before a restart. Namespaces are not taken over: a tree never deletes one that was not created for it.
func (r *Repositories) accept(
	repository types.UID, others map[string]*v1alpha1.PolicyRepository, rec *record,
	live map[inventory.ID]*unstructured.Unstructured,
) (givers, keepers map[string]bool) {
	own := r.scopes.of(repository)
	room := rec.room(own.Tree) - keptRoom
	givers, keepers = map[string]bool{}, map[string]bool{}
	for id, object := range live {
		uid := object.GetUID()
		if object.GetLabels()[v1alpha1.TreeLabel] != own.Tree {
			continue
		}
		isRecorded := rec.created[uid]
		for _, other := range others {
			scope := r.scopes.of(other.UID)
			switch {
			case !scope.Created[uid] || scope.Declared[id] != nil:
			case isRecorded || own.Declared[id] == nil || isNamespace(id) || room < uidSize:
				keepers[other.Name] = true
			default:
				rec.created[uid], givers[other.Name] = true, true
			}
		}
		if rec.created[uid] && !isRecorded {
			room -= uidSize
		}
	}
	return givers, keepers
}

// leave returns the objects that the tree may leave to another one: their label names that tree, and it is unknown yet
// whether that tree takes them over. It returns the names of the PolicyRepositories, too, whose trees declare such
// objects, and may have been read before this one no longer declared them. An object that another tree has taken over
// does not count as created for this tree any more, also if this one declares it again: otherwise both would delete it.
// Nor does a namespace that the other tree declares.
func (r *Repositories) leave(
	repository types.UID, others map[string]*v1alpha1.PolicyRepository, rec *record,
	live map[inventory.ID]*unstructured.Unstructured,
) (undecided map[inventory.ID]bool, takers map[string]bool) {
	own := r.scopes.of(repository)
	undecided, takers = map[inventory.ID]bool{}, map[string]bool{}
	for id, object := range live {
		if !rec.created[object.GetUID()] {
			continue
		}
		tree := object.GetLabels()[v1alpha1.TreeLabel]
		other, exists := others[tree]
		if !exists {
			continue
		}
		scope := r.scopes.of(other.UID)
		switch isOther := scope.Tree == tree; { // otherwise it is unknown, or that of the path before
		case isOther && scope.Created[object.GetUID()]:
			delete(rec.created, object.GetUID())
		case own.Declared[id] != nil:
		case isOther && isNamespace(id) && scope.Declared[id] != nil:
			delete(rec.created, object.GetUID())
		case !isOther:
			undecided[id] = true
		case scope.Declared[id] != nil:
			undecided[id], takers[other.Name] = true, true
		}
	}
	return undecided, takers
}

func isNamespace(id inventory.ID) bool {
	return inventory.PhaseOf(id.GroupKind) == inventory.Namespaces
}

// treesOf returns the names of the trees for which pending objects may have been created: the present name of the
// tree, and earlier ones. An earlier name that another PolicyRepository has now is omitted, because the object may have
// been created for that one.
func treesOf(tree *vetted, others map[string]*v1alpha1.PolicyRepository, rec *record) map[string]bool {
	trees := maps.Clone(rec.trees)
	maps.DeleteFunc(trees, func(name string, _ bool) bool { return others[name] != nil })
	trees[tree.root] = true
	return trees
}
