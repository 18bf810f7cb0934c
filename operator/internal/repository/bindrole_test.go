package repository

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Everyone who may change one directory of a tree can bind a role there that the account of the tree may not bind. That
// delays what needs the binding, and nothing else.
func TestABindingThatIsNotPermittedDelaysNothingElse(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	reader := newRepositories(t, cluster.RESTConfig(), nil) // does not know what admin wrote
	const root = "unbound"
	repository := createRepository(t, admin, root)
	binding := func(name, role string) string {
		return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: " + name +
			"}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + role +
			"}, subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: eve}]}"
	}
	namespace := func(name string) string {
		return "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-" + name + "}}"
	}
	o, err := admin.apply(t.Context(), repository, treeOf(t, root, "one", map[string]string{
		"revoked.yaml": roleFile(root + "-revoked"), root + "-shop/revoked.yaml": binding("revoked", "shop"),
		root + "-shop/" + root + "-a/ns.yaml": namespace("a"), root + "-gone/revoked.yaml": binding("revoked", "edit"),
	}))
	require.NoError(t, err)
	require.True(t, o.isComplete(), "%v %v", o.failures, o.Conflicts)

	config := rest.CopyConfig(cluster.RESTConfig())
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return transport(func(request *http.Request) (*http.Response, error) {
			if request.Method == http.MethodPatch && strings.HasSuffix(request.URL.Path, ".cluster-admin") ||
				strings.HasSuffix(request.URL.Path, "/nstpl-operator-tree-"+root) {
				return nil, errEnded
			}
			return next.RoundTrip(request)
		})
	})
	o, err = newRepositories(t, config, nil).apply(t.Context(), repository, treeOf(t, root, "two", map[string]string{
		root + "-bob/bob.yaml":               binding("bob", "cluster-admin"),
		root + "-bob/" + root + "-b/ns.yaml": namespace("b"), root + "-shop/new.yaml": binding("new", "other"),
		root + "-shop/" + root + "-a/ns.yaml": namespace("a"), root + "-shop/" + root + "-c/ns.yaml": namespace("c"),
	}))
	require.NoError(t, err)
	require.Len(t, o.failures, 1)
	require.Equal(t, []string{
		"Namespace " + root + "-a", "Namespace " + root + "-c", "NamespaceTemplate " + root,
		"NamespaceTemplate " + root + "-shop", "PolicySpace " + root, "PolicySpace " + root + "-shop",
	}, liveOf(t, reader, root), "what is revoked ends, and all others get what they are to get")
	require.Equal(t, []string{"ClusterRole nstpl-operator-tree-" + root + ".other"},
		liveOf(t, reader, "nstpl-operator"))
}

// Earlier versions had one bind role for all ClusterRoles of a tree, and a tree that is renamed has bind roles of other
// names. The operator keeps the permission to bind what templates bind already, as long as the new one cannot be given.
func TestABindRoleStaysUntilItIsReplaced(t *testing.T) {
	t.Parallel()
	binding := func(role string) string {
		return "{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: devs}, roleRef: {" +
			"apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + role + "}, " +
			"subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: devs}]}"
	}
	tree := treeOf(t, "corp", "two", map[string]string{"a/x.yaml": binding("x"), "b/z.yaml": binding("z")})
	for _, before := range []string{"nstpl-operator-tree-corp", "nstpl-operator-tree-firm.x"} {
		for failed, want := range map[string][]string{"x": {"x"}, "z": {before, "x"}, "": {before, "x"}} {
			state := inventory.State{Live: map[inventory.ID]*unstructured.Unstructured{}, Created: map[types.UID]bool{}}
			add := func(object *unstructured.Unstructured) {
				object.SetUID(types.UID(object.GetKind() + object.GetName()))
				state.Live[render.IDOf(object)], state.Created[object.GetUID()] = object, true
			}
			for _, object := range tree.declared {
				object = object.DeepCopy()
				if object.GetName() == "nstpl-operator-tree-corp.x" {
					object.SetName(before)
					rule, _ := object.Object["rules"].([]any)[0].(map[string]any)
					rule["resourceNames"] = []any{"other", "x"}
				}
				if object.GetName() != "nstpl-operator-tree-corp.z" {
					add(object)
				}
			}
			add(treeOf(t, "corp", "one", map[string]string{"x.yaml": roleFile("x")}).declared[0])
			o := outcome{Plan: inventory.NewPlan(tree.declared, state, inventory.Options{Tree: "corp"})}
			for _, change := range o.Applies {
				if id := declared(change); id.Name == "nstpl-operator-tree-corp."+failed {
					o.failures = append(o.failures, failure{id, errEnded})
				}
			}
			require.Equal(t, failed != "", o.hasFailed())
			o.keepForFailures()
			var deletes []string
			for _, object := range o.Deletes {
				deletes = append(deletes, object.GetName())
			}
			require.Equal(t, want, deletes, "%s, failed: %s", before, failed)
		}
	}
}
