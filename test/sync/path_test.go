package sync_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/test/gittest"
)

// A tree stays in force until the one of the changed path is applied, although its commit has that path too, with
// nothing in it.
func TestAChangedPathDeletesNothingWhileItsCommitIsRefused(t *testing.T) {
	t.Parallel()
	x := newTree(t, "path-before")
	files := map[string]string{
		"path-before/role.yaml":             roleFile("path-a", "get"),
		"path-before/path-a/namespace.yaml": namespaceFile("path-a"),
		"path-after/README.md":              "# Policies, soon",
	}
	a := x.git.Commit(t, gittest.Commit{Files: files})
	x.follow()
	x.waitApplied(a)
	x.suspend(true)
	x.waitReason("Suspended", a)
	files["path-after/path-a/namespace.yaml"] = namespaceFile("other")
	b := x.git.Commit(t, gittest.Commit{Files: files})
	require.NoError(t, cluster.client.Patch(t.Context(), x.repository, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec": {"path": "path-after", "suspend": false}}`))))
	require.Contains(t, x.waitReason("Violations", b), "commit "+a[:7]+" stays in force")
	require.NoError(t, cluster.client.Delete(t.Context(), role("path-a")))
	x.waitExists(role("path-a"))
	x.mustExist(namespace("path-a"))

	files["path-after/path-a/namespace.yaml"] = namespaceFile("path-a")
	c := x.git.Commit(t, gittest.Commit{Files: files})
	x.request()
	x.waitApplied(c)
	x.waitGone(role("path-a"))
	x.mustExist(namespace("path-a"))
}
