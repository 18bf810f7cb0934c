package repository

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Two PolicyRepositories swap their paths, so that each declares what was created for the other one. What a later
// commit takes away is deleted, whenever that commit comes, and whenever a process ends. Namespaces stay.
func TestObjectsOfAnotherTreeAreDeletedWhenUndeclared(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	for root, rounds := range map[string]int{"swap-at-once": 0, "swap-soon": 1, "swap-later": 3} {
		ns := "{apiVersion: v1, kind: Namespace, metadata: {name: " + root + "-n}}"
		files := map[string]string{
			"role.yaml": roleFile(root + "-role"), root + "-team/viewers.yaml": bindingFile("ann"),
			root + "-team/" + root + "-n/ns.yaml": ns,
		}
		first, second := treeOf(t, root, "one", files), treeOf(t, "other-"+root, "one", nil)
		one, two := createRepository(t, admin, root), createRepository(t, admin, "other-"+root)
		process := admin
		pass := func(repository *v1alpha1.PolicyRepository, tree *vetted) {
			t.Helper()
			o, err := process.apply(t.Context(), repository, tree)
			require.NoError(t, err)
			require.False(t, o.hasFailed(), "%v %v", o.failures, o.Conflicts)
		}
		pass(one, first)
		pass(two, second)
		require.Contains(t, liveOf(t, admin, root), "NamespaceTemplate "+root+"-team")

		one.Spec.Path, two.Spec.Path = two.Spec.Path, one.Spec.Path
		two.Spec.ExistingNamespaces = v1alpha1.ExistingAdopt
		require.NoError(t, admin.Client.Update(t.Context(), one))
		require.NoError(t, admin.Client.Update(t.Context(), two))
		pass(one, second)
		for range rounds {
			pass(two, first)
			pass(one, second)
		}
		process = newRepositories(t, cluster.RESTConfig(), nil)
		reduced := treeOf(t, root, "two", map[string]string{root + "-n/ns.yaml": ns})
		for range 3 {
			pass(two, reduced)
			pass(one, second)
		}
		assert.Equal(t, []string{"Namespace " + root + "-n", "NamespaceTemplate " + root, "PolicySpace " + root},
			liveOf(t, admin, root), root)
	}
}
