package hierarchy

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Predecessors returns the roots of other trees that a tree takes the place of, because its root was renamed: it declares all Namespaces and
// PolicySpaces of such a tree but the old root. What else has the label of such a tree is left behind, and no prune by the label of the new
// root finds it. live are the Namespaces and PolicySpaces of a cluster, declared what the tree compiles to.
func Predecessors(root string, live, declared []*unstructured.Unstructured) []string {
	type id struct {
		kind schema.GroupKind
		name string
	}
	idOf := func(object *unstructured.Unstructured) id {
		return id{object.GroupVersionKind().GroupKind(), object.GetName()}
	}
	has := map[id]bool{}
	for _, object := range declared {
		has[idOf(object)] = true
	}
	complete := map[string]bool{}
	for _, object := range live {
		tree := object.GetLabels()[v1alpha1.TreeLabel]
		isRoot := object.GetKind() == "PolicySpace" && object.GetName() == tree
		if tree == "" || tree == root || isRoot && !has[idOf(object)] {
			continue
		}
		if before, known := complete[tree]; before || !known {
			complete[tree] = has[idOf(object)]
		}
	}
	maps.DeleteFunc(complete, func(_ string, all bool) bool { return !all })
	return slices.Sorted(maps.Keys(complete))
}
