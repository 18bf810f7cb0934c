package repository

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Every author of a directory can fill the record. Then further objects are not created, and the status says so: all
// that a commit changes and takes away goes on, and what the root directory adds. Only namespaces are not deleted
// before all are created.
func TestAFullRecordStopsOnlyCreations(t *testing.T) {
	t.Parallel()
	_, admin := newCluster(t)
	const root = "full"
	repository := createRepository(t, admin, root)
	files := map[string]string{
		"revoked.yaml": roleFile(root + "-revoked"), "team/viewers.yaml": bindingFile("ann"),
		"team/" + root + "-n/ns.yaml":    "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-n}}",
		"team/" + root + "-gone/ns.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-gone}}",
	}
	o, err := admin.apply(t.Context(), repository, treeOf(t, root, "one", files))
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)

	record := &corev1.ConfigMap{}
	key := client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: recordName(root)}
	require.NoError(t, admin.Client.Get(t.Context(), key, record))
	record.Data[pendingKey] = "Namespace/" + root + "-late\n"
	for i := range (maxRecordSize - keptRoom - sizeOf(record.Data)) / 32 { // stands for created objects
		record.Data[treesKey] += fmt.Sprintf("%031d\n", i)
	}
	require.NoError(t, admin.Client.Update(t.Context(), record))
	clear(files)
	files["added.yaml"] = roleFile(root + "-added")
	files["team/added.yaml"] = strings.Replace(bindingFile("added"), "name: view", "name: "+root+"-added", 1)
	files["team/viewers.yaml"] = bindingFile("bob")
	files["team/"+root+"-n/ns.yaml"] = "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-n}}"
	files["team/"+root+"-new/ns.yaml"] = "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-new}}"
	second := treeOf(t, root, "two", files)
	o, err = admin.apply(t.Context(), repository, second)
	require.NoError(t, err)
	require.Equal(t, []string{
		"ClusterRole " + root + "-added", "Namespace " + root + "-gone", "Namespace " + root + "-n",
		"NamespaceTemplate " + root, "PolicySpace " + root,
	}, liveOf(t, admin, root))
	template := newObject(v1alpha1.GroupVersion.WithKind("NamespaceTemplate"))
	require.NoError(t, admin.Client.Get(t.Context(), client.ObjectKey{Name: "team"}, template))
	bindings, _, err := unstructured.NestedSlice(template.Object, "spec", "templates")
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(bindings), "bob")
	require.NotContains(t, fmt.Sprint(bindings), "ann", "what is revoked does not wait for the new permission to bind")
	require.Contains(t, fmt.Sprint(bindings), root+"-added")
	now := conditionOf(answer{tree: second, path: second.path}, &o)
	require.Equal(t, v1alpha1.RepositoryObjectsFailed, now.reason)
	require.Equal(t, "namespace/"+root+"-new: the record of the objects that were created for the tree is full, so it "+
		"is not created: divide the tree among several PolicyRepositories", now.message)

	require.NoError(t, admin.Client.Get(t.Context(), key, record))
	record.Data[pendingKey], record.Data[treesKey] = "", ""
	require.NoError(t, admin.Client.Update(t.Context(), record))
	o, err = admin.apply(t.Context(), repository, second)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	require.Contains(t, liveOf(t, admin, root), "Namespace "+root+"-new")
	require.Contains(t, liveOf(t, admin, root), "Namespace "+root+"-gone, being deleted")
}

// The names of objects that are created in a pass take room in the record only during that pass. What has no room
// because of them has not failed.
func TestARecordThatHasRoomInTheNextPassIsNotFull(t *testing.T) {
	t.Parallel()
	names := []string{"a", "b"}
	size := pendingSize(render.IDOf(object("a")))
	for free, wantFailures := range map[int]int{2*size - 1: 0, size + uidSize: 0, size - 1: 2} {
		rec := &record{created: map[types.UID]bool{}, trees: map[string]bool{}}
		rec.trees[strings.Repeat("x", rec.room("full")-1-keptRoom-free)] = true
		o := outcome{}
		for _, name := range names {
			o.Applies = append(o.Applies, inventory.Apply{Declared: object(name)})
		}
		o.limitPending(rec, "full")
		require.True(t, o.lacksRoom, free)
		require.Len(t, o.failures, wantFailures, free)
		require.Len(t, o.Applies, min(free/size, 1), free)
	}
}
