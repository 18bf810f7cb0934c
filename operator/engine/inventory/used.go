package inventory

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/engine/render"
)

// KeepUsedSpaces moves the policyspaces that would be deleted although namespaces, or policyspaces of the tree, remain
// in or below them from Deletes to Used. Such a namespace waits for a confirmation of its deletion, is protected from
// deletion, was created by others, or stays where it was because an object of the tree failed, as such a policyspace
// does. So it is called once that is known: applied are the objects of the plan that were applied, as they are now. A
// later plan deletes the policyspaces.
func (p *Plan) KeepUsedSpaces(applied []*unstructured.Unstructured) {
	now := map[ID]*unstructured.Unstructured{}
	maps.Copy(now, p.live)
	for _, object := range applied {
		now[render.IDOf(object)] = object
	}
	leaving := map[ID]bool{}
	for _, object := range slices.Concat(p.Deletes, p.Releases) {
		leaving[render.IDOf(object)] = true
	}
	used := map[string]bool{}
	for id, object := range now {
		mayUse := id.GroupKind == namespaceKind || id.GroupKind == spaceKind && p.declared[id] != nil
		if !mayUse || leaving[id] || isBeingDeleted(object) {
			continue
		}
		for _, space := range lineage(object, now)[1:] {
			used[space] = true
		}
	}
	p.Deletes = slices.DeleteFunc(p.Deletes, func(object *unstructured.Unstructured) bool {
		isUsed := render.IDOf(object).GroupKind == spaceKind && used[object.GetName()]
		if isUsed {
			p.Used = append(p.Used, object.GetName())
		}
		return isUsed
	})
	slices.Sort(p.Used)
}
