package repository

import (
	"errors"
	"net/http"
	"path"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
)

// What the time of a step did not suffice for keeps what it needs, as what failed does.
func TestWhatWaitsKeepsDeletions(t *testing.T) {
	t.Parallel()
	role := func(name string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": map[string]any{"name": name},
			"rules": []any{map[string]any{"resourceNames": []any{name[len(name)-1:]}}}, // which a bind role allows to bind
		}}
	}
	o := outcome{Plan: inventory.Plan{
		Held: []inventory.Apply{{Declared: role("waits")}}, Deletes: []*unstructured.Unstructured{role("old")},
	}}
	o.keepForFailures()
	require.Empty(t, o.Deletes)

	binds := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "NamespaceTemplate",
		"metadata": map[string]any{"name": "waits"}, "spec": map[string]any{"templates": []any{map[string]any{
			"kind": "RoleBinding", "roleRef": map[string]any{"kind": "ClusterRole", "name": "x"},
		}}},
	}}
	o = outcome{Plan: inventory.Plan{
		Held: []inventory.Apply{{Declared: role("nstpl-operator-tree-a.y")}, {Declared: binds, Live: binds}},
		Deletes: []*unstructured.Unstructured{
			role("x"), role("nstpl-operator-tree-a.x"), role("nstpl-operator-tree-a.z"), role("old"),
		},
	}}
	o.keepForFailures()
	require.Equal(t, []*unstructured.Unstructured{role("nstpl-operator-tree-a.z"), role("old")}, o.Deletes,
		"nothing waits for the permission to bind y, and the template that stays needs x, and to bind it")
}

// A namespace that cannot be created may be the new name of one that the commit no longer declares: that one stays, in
// its policyspaces, as does one that cannot move. The grants that the commit revokes end all the same.
func TestWhatStaysBecauseAnObjectFails(t *testing.T) {
	t.Parallel()
	namespace := func(name string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + name + "}}"
	}
	const devs = "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: devs}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, " +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: devs}]}"
	all := []string{
		"Namespace before", "PolicySpace below", "PolicySpace team",
		"NamespaceTemplate before", "NamespaceTemplate team",
	}
	for name, test := range map[string]struct {
		// after is the path of the namespace that replaces team/below/before, and failed the object that fails.
		after, failed, reason string
		exists                bool
		deletes, used         []string
	}{
		"an empty policyspace cannot move": {
			"new/empty", "empty", "denied", false, []string{all[0], all[1], all[3]}, []string{"team"},
		},
		"it cannot be created":        {"after", "after", "denied", false, all[3:], []string{"below", "team"}},
		"it lacks room":               {"after", "after", "exceeded (nstpl:quota-exceeded)", false, all, nil},
		"it cannot be changed":        {"after", "after", "denied", true, all, nil},
		"it cannot move":              {"new/before", "before", "denied", false, nil, []string{"below", "team"}},
		"its policyspace cannot move": {"new/below/before", "below", "denied", false, all[3:4], []string{"team"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := map[string]string{
				"team/below/before/ns.yaml": namespace("before"), "team/below/before/devs.yaml": devs,
				"team/devs.yaml": devs, "stays/ns.yaml": namespace("stays"),
			}
			after := map[string]string{
				test.after + "/ns.yaml": namespace(path.Base(test.after)), "stays/ns.yaml": namespace("stays"),
			}
			if test.failed == "empty" {
				before["team/empty/devs.yaml"] = devs
				after = map[string]string{"new/empty/devs.yaml": devs, "stays/ns.yaml": namespace("stays")}
			}
			if test.exists {
				before["after/ns.yaml"] = strings.Replace(namespace("after"), "name:", "labels: {a: b}, name:", 1)
			}
			state := inventory.State{Live: map[inventory.ID]*unstructured.Unstructured{}, Created: map[types.UID]bool{}}
			for _, object := range treeOf(t, "corp", "one", before).declared {
				id := render.IDOf(object)
				object.SetUID(types.UID(id.String()))
				state.Live[id], state.Created[object.GetUID()] = object, true
			}
			tree := treeOf(t, "corp", "two", after)
			o := outcome{Plan: inventory.NewPlan(tree.declared, state, inventory.Options{Tree: "corp"})}
			for _, change := range o.Applies {
				if id := declared(change); id.Name == test.failed {
					o.failures = append(o.failures, failure{id, errors.New(test.reason)})
				} else {
					o.stored = append(o.stored, stored{change.Declared, change.Declared})
				}
			}
			require.Len(t, o.failures, 1)
			o.keepForFailures()
			var deletes []string
			for _, object := range o.Deletes {
				deletes = append(deletes, object.GetKind()+" "+object.GetName())
			}
			require.Equal(t, test.deletes, deletes)
			require.Equal(t, test.used, o.Used)
		})
	}
}

// A namespace whose deletion is refused keeps what it has. What the commit revokes elsewhere ends.
func TestANamespaceThatCannotBeDeletedKeepsNothingElse(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	const root = "refused"
	repository := createRepository(t, admin, root)
	binding := "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: devs}, " +
		"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}, " +
		"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: devs}]}"
	namespace := func(name string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-" + name + "}}"
	}
	o, err := admin.apply(t.Context(), repository, treeOf(t, root, "one", map[string]string{
		root + "-team/devs.yaml": binding, root + "-team/" + root + "-goes/ns.yaml": namespace("goes"),
		root + "-other/devs.yaml": binding, root + "-other/" + root + "-stays/ns.yaml": namespace("stays"),
	}))
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	config := rest.CopyConfig(cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodDelete && strings.HasSuffix(request.URL.Path, "/namespaces/"+root+"-goes") {
				return nil, errEnded
			}
			return next.RoundTrip(request)
		})
	})
	refused := newRepositories(t, config, nil)
	o, err = refused.apply(t.Context(), repository, treeOf(t, root, "two", map[string]string{
		root + "-stays/ns.yaml": namespace("stays"),
	}))
	require.NoError(t, err)
	require.Len(t, o.failures, 1)
	require.Equal(t, []string{
		"Namespace " + root + "-goes", "Namespace " + root + "-stays", "NamespaceTemplate " + root,
		"NamespaceTemplate " + root + "-team", "PolicySpace " + root, "PolicySpace " + root + "-team",
	}, liveOf(t, refused, root))
}

// Every author of templates may create one with a name that a tree is about to declare.
func TestAConflictHoldsBackOnlyWhatNeedsTheObject(t *testing.T) {
	t.Parallel()
	_, admin := newCluster(t)
	const root = "squatted"
	repository := createRepository(t, admin, root)
	binding := func(name, role string) string {
		return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: " + name +
			"}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + role +
			"}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}]}"
	}
	namespace := func(name string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-" + name + "}}"
	}
	before := treeOf(t, root, "one", map[string]string{
		"role.yaml": roleFile(root + "-moved"), "revoked.yaml": binding("revoked", "view"),
		root + "-team/moved.yaml":   binding("moved", root+"-moved"),
		root + "-team/revoked.yaml": binding("revoked", "edit"), root + "-team/" + root + "-n/ns.yaml": namespace("n"),
		root + "-ended/revoked.yaml": binding("revoked", "edit"), root + "-ended/" + root + "-e/ns.yaml": namespace("e"),
	})
	after := treeOf(t, root, "two", map[string]string{
		root + "-new/" + root + "-n/ns.yaml": namespace("n"), root + "-new/" + root + "-e/ns.yaml": namespace("e"),
		root + "-new/moved.yaml": binding("moved", root+"-moved"),
	})
	o, err := admin.apply(t.Context(), repository, before)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	squatter := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: root + "-new"}}
	squatter.Spec.Namespaces.LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"is": "none"}}
	require.NoError(t, admin.Client.Create(t.Context(), squatter))
	o, err = admin.apply(t.Context(), repository, after)
	require.NoError(t, err)
	require.Empty(t, o.failures)
	require.Len(t, o.Conflicts, 1)
	template := &v1alpha1.NamespaceTemplate{}
	require.NoError(t, admin.Live.Get(t.Context(), client.ObjectKey{Name: root}, template))
	require.Empty(t, template.Spec.Templates, "the revocation at the root does not wait")
	require.Equal(t, []string{
		"ClusterRole " + root + "-moved", "Namespace " + root + "-e", "Namespace " + root + "-n",
		"NamespaceTemplate " + root, "NamespaceTemplate " + root + "-ended", "NamespaceTemplate " + root + "-new",
		"NamespaceTemplate " + root + "-team", "PolicySpace " + root, "PolicySpace " + root + "-ended",
		"PolicySpace " + root + "-team",
	}, liveOf(t, admin, root), "the namespaces keep what they have until they move")

	require.NoError(t, admin.Client.Delete(t.Context(), squatter))
	o, err = admin.apply(t.Context(), repository, after)
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)
	require.Equal(t, []string{
		"Namespace " + root + "-e", "Namespace " + root + "-n", "NamespaceTemplate " + root,
		"NamespaceTemplate " + root + "-new", "PolicySpace " + root, "PolicySpace " + root + "-new",
	}, liveOf(t, admin, root))
}
