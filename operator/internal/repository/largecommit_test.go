package repository

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
)

// bindingFile returns a RoleBinding of a user to the ClusterRole view.
func bindingFile(name string) string {
	return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: " + name +
		"}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}, " +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: " + name + "}]}"
}

// planned returns the plan of a commit after another one that is in force.
func planned(t *testing.T, before, after map[string]string) outcome {
	t.Helper()
	state := inventory.State{Live: map[inventory.ID]*unstructured.Unstructured{}, Created: map[types.UID]bool{}}
	for _, object := range treeOf(t, "corp", "one", before).declared {
		id := render.IDOf(object)
		object.SetUID(types.UID(id.String()))
		state.Live[id], state.Created[object.GetUID()] = object, true
	}
	return outcome{Plan: inventory.NewPlan(treeOf(t, "corp", "two", after).declared, state,
		inventory.Options{Tree: "corp"})}
}

// objectsIn returns the numbers of the objects that the templates among some changes declare.
func objectsIn(changes []inventory.Apply) map[string]int {
	numbers := map[string]int{}
	for _, change := range changes {
		objects, _, _ := unstructured.NestedSlice(change.Declared.Object, "spec", "templates")
		numbers[declared(change).String()] = len(objects)
	}
	return numbers
}

// A commit may change what exists, or take one of two bindings away, and create more than one pass does. What is
// created comes first, and the template of the root directory last.
func TestALargeCommitDelaysNoChange(t *testing.T) {
	t.Parallel()
	before := map[string]string{
		"revoked.yaml": bindingFile("eve"), "moved.yaml": bindingFile("moved"), "stays.yaml": bindingFile("stays"),
		"team/revoked.yaml": bindingFile("eve"), "team/stays.yaml": bindingFile("stays"),
		"team/moves/ns.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: moves}}",
	}
	after := map[string]string{"stays.yaml": before["stays.yaml"], "team/stays.yaml": before["team/stays.yaml"]}
	for i := range maxChanges + maxRevocations {
		after[fmt.Sprintf("d%04d/b.yaml", i)] = bindingFile(fmt.Sprint("user-", i))
	}
	after["d9999/moves/ns.yaml"], after["d9999/moved.yaml"] = before["team/moves/ns.yaml"], before["moved.yaml"]
	o := planned(t, before, after)
	all := len(o.Applies)
	o.limit(nil)
	bindings := objectsIn(o.Applies[maxChanges:])
	const template = "namespacetemplate.policy.nstpl.dev/"
	require.Equal(t, map[string]int{template + "corp": 2, template + "team": 1}, bindings,
		"the root keeps what another template is to declare, and the namespace waits for its new place")
	require.Equal(t, all, len(o.Applies)+o.remaining)
	require.Len(t, o.Held, o.remaining)
}

// An object that a template hands over to one that a pass does not change yet stays where it is.
func TestALargeCommitLosesNothingThatMoves(t *testing.T) {
	t.Parallel()
	before, after := map[string]string{"stays.yaml": bindingFile("stays")}, map[string]string{"stays.yaml": bindingFile("stays")}
	for i := range maxRevocations + 1 {
		directory := fmt.Sprintf("e%04d/", i)
		before[directory+"b.yaml"], before[directory+"c.yaml"] = bindingFile(fmt.Sprint("user-", i)), bindingFile("kept")
		after[directory+"c.yaml"] = bindingFile("kept")
	}
	after["moved.yaml"] = before["e0000/b.yaml"]
	for i := range maxChanges {
		after[fmt.Sprintf("d%04d/b.yaml", i)] = bindingFile(fmt.Sprint("new-", i))
	}
	o := planned(t, before, after)
	o.limit(nil)
	bindings := objectsIn(o.Applies)
	const template = "namespacetemplate.policy.nstpl.dev/"
	require.NotContains(t, bindings, template+"corp")
	require.Equal(t, 1, bindings[template+"e0001"])
	require.Equal(t, 2, bindings[template+"e0000"])
}
