package sync_test

import (
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/gittest"
	"nstpl.dev/nstpl/test/operator"
)

// While the Git server hangs, or fails, the commit in force is kept in force. An empty repository deletes nothing.
func TestFailuresOfTheServerChangeNothing(t *testing.T) {
	t.Parallel()
	var broken atomic.Pointer[http.HandlerFunc]
	x := newTreeBehind(t, "failing", func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if handler := broken.Load(); handler != nil {
				(*handler)(w, r)
				return
			}
			git.ServeHTTP(w, r)
		})
	})
	a := x.commit(map[string]string{
		"failing-a/namespace.yaml": namespaceFile("failing-a"), "viewers.yaml": bindingFile("viewers", "view", "ann"),
	})
	x.follow()
	x.waitApplied(a)
	isRepaired := func() {
		t.Helper()
		template := &v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "failing"}}
		require.NoError(t, cluster.client.Delete(t.Context(), template))
		old := template.UID
		x.eventually(func(c *assert.CollectT) {
			assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(template), template))
			assert.NotEqual(c, old, template.UID)
			assert.Nil(c, template.DeletionTimestamp)
		})
	}
	released := make(chan struct{})
	hangs := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-released:
		case <-r.Context().Done():
		}
	})
	broken.Store(&hangs)
	x.request()
	isRepaired()
	close(released)

	answers := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) })
	broken.Store(&answers)
	x.request()
	require.Contains(t, x.waitReason("AccessDenied", a), "; commit "+a[:7]+" stays in force")
	isRepaired()

	broken.Store(nil)
	x.git.Git(t, "update-ref", "-d", "refs/heads/main")
	x.request()
	x.waitReason("NotFound", a)
	x.mustExist(namespace("failing-a"))
	x.waitApplied(x.commit(map[string]string{"failing-a/namespace.yaml": namespaceFile("failing-a")}))
}

// A process that starts while the newest commit breaks a rule keeps the last valid one in force. The test is not
// parallel, because it restarts the nstpl-sync of all tests.
func TestARestartKeepsTheLastValidCommitInForce(t *testing.T) {
	x := newTree(t, "restart")
	files := map[string]string{
		"role.yaml": roleFile("restart-a", "get"), "restart-a/namespace.yaml": namespaceFile("restart-a"),
	}
	a := x.commit(files)
	x.follow()
	x.waitApplied(a)
	b := x.commit(map[string]string{"restart-a/namespace.yaml": namespaceFile("another")})
	x.waitReason("Violations", b)

	restart := func(options operator.Options) {
		require.NoError(t, cluster.sync.Kill())
		startSync(t, options)
	}
	empty := cluster.syncOptionsOf(t) // the new process has none of the fetched commits
	t.Cleanup(func() { restart(cluster.syncOptions) })
	restart(empty)
	require.NoError(t, cluster.client.Delete(t.Context(), role("restart-a")))
	x.waitExists(role("restart-a"))

	x.suspend(true)
	x.waitReason("Suspended", b)
	x.suspend(false)
	x.waitReason("Violations", b)
}

// Commits must be signed if the PolicyRepository says so.
func TestUnsignedCommitsAreNotApplied(t *testing.T) {
	t.Parallel()
	x := newTree(t, "signed")
	keys := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: "signed-keys"},
		Data:       map[string][]byte{"ann": gittest.NewKey(t, "").Authorized},
	}
	require.NoError(t, cluster.client.Create(t.Context(), keys))
	a := x.commit(map[string]string{"signed-a/namespace.yaml": namespaceFile("signed-a")})
	x.follow(func(r *v1alpha1.PolicyRepository) {
		r.Spec.Git.Verify = &v1alpha1.GitVerification{SecretRef: v1alpha1.SecretReference{Name: keys.Name}}
	})
	require.Contains(t, x.waitReason("NotVerified", ""), "the commit "+a+" is not signed")
	x.mustNotExist(namespace("signed-a"))

	// A Secret without keys does not end the verification.
	keys.Data = nil
	require.NoError(t, cluster.client.Update(t.Context(), keys))
	x.request()
	require.Contains(t, x.waitReason("InvalidConfiguration", ""), "the Secret signed-keys with trusted keys is empty")
	x.mustNotExist(namespace("signed-a"))
}

// A tree that moves to another directory, and so gets another name, keeps its namespaces.
func TestARenamedTreeKeepsItsNamespaces(t *testing.T) {
	t.Parallel()
	x := newTree(t, "before")
	adopted := namespace("before-adopted")
	require.NoError(t, cluster.client.Create(t.Context(), adopted))
	both := gittest.Commit{Files: map[string]string{
		"before/before-a/namespace.yaml":       namespaceFile("before-a"),
		"before/before-adopted/namespace.yaml": namespaceFile("before-adopted"),
		"before/viewers.yaml":                  bindingFile("viewers", "view", "ann"),
		"after/before-a/namespace.yaml":        namespaceFile("before-a"),
		"after/before-adopted/namespace.yaml":  namespaceFile("before-adopted"),
		"after/viewers.yaml":                   bindingFile("viewers", "view", "ann"),
	}}
	a := x.git.Commit(t, both)
	x.follow(func(r *v1alpha1.PolicyRepository) { r.Spec.ExistingNamespaces = v1alpha1.ExistingAdopt })
	x.waitApplied(a)
	x.waitExists(binding("before-adopted", "before.viewers"))
	ns := namespace("before-a")
	x.mustExist(ns)
	uid := ns.UID
	mergePatch(t, x.repository, `{"spec": {"path": "after"}}`)
	x.waitExists(space("after"))
	x.waitGone(space("before"))
	x.waitExists(binding("before-a", "after.viewers"))
	x.waitExists(binding("before-adopted", "after.viewers"))
	x.mustExist(ns)
	require.Equal(t, uid, ns.UID)
	require.Equal(t, "after", ns.Labels[v1alpha1.TreeLabel])
	x.mustExist(adopted)
	require.Equal(t, "after", adopted.Labels[v1alpha1.PolicySpaceLabel])
}

// The tree is renamed after nstpl-sync has ended without the answer to a creation. The object is recorded all the same,
// and is deleted, because the tree does not declare it under its new name. The test is not parallel, because it restarts
// the nstpl-sync of all tests.
func TestARenamedTreeDeletesWhatWasCreatedWithoutAnAnswer(t *testing.T) {
	x := newTree(t, "unanswered")
	a := x.git.Commit(t, gittest.Commit{Files: map[string]string{
		"unanswered/role.yaml":                     roleFile("unanswered-role", "get"),
		"unanswered/unanswered-a/namespace.yaml":   namespaceFile("unanswered-a"),
		"unanswered-2/unanswered-a/namespace.yaml": namespaceFile("unanswered-a"),
	}})
	x.follow()
	x.waitApplied(a)
	created := role("unanswered-role")
	x.mustExist(created)

	require.NoError(t, cluster.sync.Kill())
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.OperatorNamespace, Name: "nstpl-sync-" + x.name,
	}}
	x.mustExist(record)
	require.Contains(t, record.Data["created"], string(created.UID))
	record.Data["created"] = strings.ReplaceAll(record.Data["created"], string(created.UID)+"\n", "")
	record.Data["pending"] = "ClusterRole.rbac.authorization.k8s.io/unanswered-role\n"
	record.Data["trees"] = "unanswered\n"
	require.NoError(t, cluster.client.Update(t.Context(), record))
	mergePatch(t, x.repository, `{"spec": {"path": "unanswered-2"}}`)
	startSync(t, cluster.syncOptions)

	x.waitGone(created)
	x.waitApplied(a)
	ns := namespace("unanswered-a")
	x.mustExist(ns)
	require.Equal(t, "unanswered-2", ns.Labels[v1alpha1.TreeLabel])
}
