package repository

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
)

// accept records the objects that the tree takes over: it declares them, they have its label, and they were created for
// another tree, which no longer declares them. So a later commit takes them away, as the other tree would have. The
// other tree keeps them in its record until this one has stored its own. Namespaces are not taken over: a tree never
// deletes one that was not created for it.
func (r *Repositories) accept(
	repository types.UID, others map[string]*v1alpha1.PolicyRepository, rec *record,
	live map[inventory.ID]*unstructured.Unstructured,
) {
	own := r.scopes.of(repository)
	room := rec.room(own.Tree)
	for id := range own.Declared {
		object := live[id]
		if object == nil || isNamespace(id) || object.GetLabels()[v1alpha1.TreeLabel] != own.Tree {
			continue
		}
		uid := object.GetUID()
		for _, other := range others {
			scope := r.scopes.of(other.UID)
			isGiven := scope.Created[uid] && scope.Declared[id] == nil
			if isGiven && !rec.created[uid] && room >= uidSize {
				rec.created[uid] = true
				room -= uidSize
			}
		}
	}
}

// leave returns the objects that the tree may leave to another one: their label names that tree, and it is unknown yet
// whether that tree takes them over. An object that it has taken over, or a namespace that it declares, does not count
// as created for this tree any more.
func (r *Repositories) leave(
	repository types.UID, others map[string]*v1alpha1.PolicyRepository, rec *record,
	live map[inventory.ID]*unstructured.Unstructured,
) map[inventory.ID]bool {
	own := r.scopes.of(repository)
	undecided := map[inventory.ID]bool{}
	for id, object := range live {
		tree := object.GetLabels()[v1alpha1.TreeLabel]
		other, exists := others[tree]
		if !exists || own.Declared[id] != nil || !rec.created[object.GetUID()] {
			continue
		}
		scope := r.scopes.of(other.UID)
		switch {
		case scope.Tree != tree: // it is unknown, or that of the path before
			undecided[id] = true
		case scope.Created[object.GetUID()], isNamespace(id) && scope.Declared[id] != nil:
			delete(rec.created, object.GetUID())
		case scope.Declared[id] != nil:
			undecided[id] = true
		}
	}
	return undecided
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
