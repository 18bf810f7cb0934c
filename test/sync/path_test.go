package sync_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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
	x.waitPath("path-before")
	x.suspend(true)
	x.waitReason("Suspended", a)
	files["path-after/path-a/namespace.yaml"] = namespaceFile("other")
	b := x.git.Commit(t, gittest.Commit{Files: files})
	mergePatch(t, x.repository, `{"spec": {"path": "path-after", "suspend": false}}`)
	require.Contains(t, x.waitReason("Violations", b), "commit "+a[:7]+" stays in force")
	require.NoError(t, cluster.client.Delete(t.Context(), role("path-a")))
	x.waitExists(role("path-a"))
	x.mustExist(namespace("path-a"))
	x.waitRequestServed() // reads the commit in force again
	x.waitPath("path-before")
	require.Contains(t, x.waitReason("Violations", b), "commit "+a[:7]+" stays in force")

	files["path-after/path-a/namespace.yaml"] = namespaceFile("path-a")
	c := x.git.Commit(t, gittest.Commit{Files: files})
	x.request()
	x.waitApplied(c)
	x.waitPath("path-after")
	x.waitGone(role("path-a"))
	x.mustExist(namespace("path-a"))
}

// waitPath waits until the status says that the objects in the cluster are those of a path.
func (x *tree) waitPath(path string) {
	x.Helper()
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) { assert.Equal(c, path, status.Path) })
}

// The confirmation of a commit holds for the namespaces that were shown with it, and not for those that another path of
// the same commit lacks.
func TestAConfirmationHoldsForAPath(t *testing.T) {
	t.Parallel()
	x := newTree(t, "path-shown")
	files := map[string]string{"later/path-shown/path-left/namespace.yaml": namespaceFile("path-left")}
	for _, name := range []string{"path-x", "path-y", "path-z", "path-left"} {
		files["path-shown/"+name+"/namespace.yaml"] = namespaceFile(name)
	}
	a := x.git.Commit(t, gittest.Commit{Files: files})
	x.follow()
	x.waitApplied(a)
	b := x.git.Commit(t, gittest.Commit{Files: without(files, "path-shown/path-x/namespace.yaml",
		"path-shown/path-y/namespace.yaml")})
	x.request()
	x.waitReason("DeletionsPending", b)
	x.suspend(true)
	x.waitReason("Suspended", b)
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, b)
	mergePatch(t, x.repository, `{"spec": {"path": "later/path-shown", "suspend": false}}`)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, "later/path-shown", status.Path)
		assertPending(c, status, b, "path-x", "path-y", "path-z")
	})
	x.waitRequestServed()
	for _, name := range []string{"path-x", "path-y", "path-z"} {
		x.mustExist(namespace(name))
	}
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, b)
	x.waitApplied(b)
	x.waitGone(namespace("path-x"))
	x.waitGone(namespace("path-z"))
}
