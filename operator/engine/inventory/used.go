package inventory

import (
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// keepUsedSpaces moves the policyspaces that would be deleted although namespaces remain in or below them from Deletes
// to Used. Such a namespace waits for a confirmation of its deletion, is protected from deletion, or was created by
// others. A later plan deletes the policyspaces.
func (p *Plan) keepUsedSpaces(declared map[ID]*unstructured.Unstructured, state State) {
	leaving := map[ID]bool{}
	for _, object := range slices.Concat(p.Deletes, p.Releases) {
		leaving[IDOf(object)] = true
	}
	used := map[string]bool{}
	for id, live := range state.Live {
		if id.GroupKind != namespaceKind || leaving[id] || isBeingDeleted(live) {
			continue
		}
		at := live
		remains := slices.Contains(p.Unmanaged, id.Name) ||
			slices.ContainsFunc(p.Conflicts, func(c Conflict) bool { return c.ID == id })
		if declared[id] != nil && !remains {
			at = declared[id]
		}
		for space := at.GetLabels()[v1alpha1.PolicySpaceLabel]; space != "" && !used[space]; {
			used[space] = true
			space = parentOf(ID{spaceKind, space}, declared, state)
		}
	}
	p.Deletes = slices.DeleteFunc(p.Deletes, func(object *unstructured.Unstructured) bool {
		id := IDOf(object)
		isUsed := id.GroupKind == spaceKind && used[id.Name]
		if isUsed {
			p.Used = append(p.Used, id.Name)
		}
		return isUsed
	})
	slices.Sort(p.Used)
}

// parentOf returns the parent of a policyspace, or "" if it has none or does not exist.
func parentOf(space ID, declared map[ID]*unstructured.Unstructured, state State) string {
	object := declared[space]
	if object == nil {
		object = state.Live[space]
	}
	if object == nil {
		return ""
	}
	return parentIn(object)
}
