package repository

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/rest"
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
