package sync_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hiddeco/sshsig"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/gittest"
)

// commitSigned commits files of the tree at a time, signs the commit, and asks for a synchronization.
func (x *tree) commitSigned(key *gittest.Key, at time.Time, files map[string]string) string {
	x.Helper()
	unsigned := x.commitOf(files)
	unsigned.Time = at
	raw := x.git.Git(x, "cat-file", "commit", x.git.Commit(x, unsigned))
	signature, err := sshsig.Sign(strings.NewReader(raw), key.Signer, sshsig.HashSHA512, "git")
	require.NoError(x, err)
	armored := strings.ReplaceAll(strings.TrimSuffix(string(sshsig.Armor(signature)), "\n"), "\n", "\n ")
	file := filepath.Join(x.TempDir(), "commit")
	signed := strings.Replace(raw, "\n\n", "\ngpgsig "+armored+"\n\n", 1)
	require.NoError(x, os.WriteFile(file, []byte(signed), 0o600))
	hash := strings.TrimSpace(x.git.Git(x, "hash-object", "-t", "commit", "-w", file))
	x.reset(hash)
	return hash
}

// reset sets the branch to a commit, and asks for a synchronization.
func (x *tree) reset(hash string) {
	x.Helper()
	x.git.Git(x, "update-ref", "refs/heads/main", hash)
	if x.repository != nil {
		x.request()
	}
}

// A user who may push and not sign sets the branch back to a signed commit. It is not applied without a confirmation,
// which holds once and confirms no deletions. The test is not parallel, because it restarts the nstpl-sync of all
// tests.
func TestASignedCommitThatIsOlderWaitsForAConfirmation(t *testing.T) {
	x := newTree(t, "rolled")
	key := gittest.NewKey(t, "")
	keys := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: "rolled-keys"},
		Data:       map[string][]byte{"ann": key.Authorized},
	}
	require.NoError(t, cluster.client.Create(t.Context(), keys))
	files := func(verb string, names ...string) map[string]string {
		all := map[string]string{"role.yaml": roleFile("rolled-role", verb)}
		for _, name := range names {
			all[name+"/namespace.yaml"] = namespaceFile(name)
		}
		return all
	}
	hasVerb := func(verb string) {
		t.Helper()
		found := role("rolled-role")
		x.mustExist(found)
		require.Equal(t, []string{verb}, found.Rules[0].Verbs)
	}
	begin := gittest.Start
	old := x.commitSigned(key, begin, files("create", "rolled-a"))
	x.follow(func(r *v1alpha1.PolicyRepository) {
		r.Spec.Git.Verify = &v1alpha1.GitVerification{SecretRef: v1alpha1.SecretReference{Name: keys.Name}}
	})
	x.waitApplied(old)
	newer := x.commitSigned(key, begin.Add(time.Hour), files("get", "rolled-a", "rolled-b", "rolled-c"))
	x.waitApplied(newer)

	x.reset(old)
	message := x.waitReason("RollbackPending", old)
	require.Contains(t, message, "commit "+old[:7]+" of 2026-01-01T00:00:00Z is older than commit "+newer[:7]+
		" of 2026-01-01T01:00:00Z, so it may be an undone change")
	require.Contains(t, message, "; commit "+newer[:7]+" stays in force")
	hasVerb("get")
	// A restart changes nothing, and what is in force is repaired.
	require.NoError(t, cluster.sync.Kill())
	require.NoError(t, cluster.client.Delete(t.Context(), role("rolled-role")))
	startSync(t, cluster.syncOptions)
	x.waitExists(role("rolled-role"))
	hasVerb("get")
	x.waitReason("RollbackPending", old)

	x.annotate(v1alpha1.ConfirmedRollbackAnnotation, old)
	x.waitReason("DeletionsPending", old)
	hasVerb("create")
	x.mustExist(namespace("rolled-b"))
	x.mustExist(namespace("rolled-c"))
	// The next commits are compared with the one in force, and the confirmation is used up.
	x.reset(newer)
	x.waitApplied(newer)
	x.reset(old)
	x.waitReason("RollbackPending", old)
	hasVerb("get")
	newest := x.commitSigned(key, begin.Add(2*time.Hour), files("list", "rolled-a", "rolled-b", "rolled-c"))
	x.waitApplied(newest)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Nil(c, status.PendingRollback)
	})

	// Neither does a restart while the one in force is not applied completely, since a user keeps a namespace.
	kept := keepDeletedNamespace(t, "rolled-a")
	partly := x.commitSigned(key, begin.Add(3*time.Hour), files("watch", "rolled-a", "rolled-b", "rolled-c"))
	x.eventually(func(c *assert.CollectT) {
		found := role("rolled-role")
		if assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(found), found)) {
			assert.Equal(c, []string{"watch"}, found.Rules[0].Verbs)
		}
	})
	x.reset(newest)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.NotNil(c, status.PendingRollback)
	})
	require.NoError(t, cluster.sync.Kill())
	require.NoError(t, cluster.client.Delete(t.Context(), role("rolled-role")))
	startSync(t, cluster.syncOptions)
	x.waitExists(role("rolled-role"))
	hasVerb("watch")
	x.reset(partly)
	releaseNamespace(t, kept)
	x.waitApplied(partly)
}

// A commit whose key is not trusted any more stays in force, and the status says that it is not verified.
func TestARemovedKeyIsReported(t *testing.T) {
	t.Parallel()
	x := newTree(t, "revoked")
	ann, bob := gittest.NewKey(t, ""), gittest.NewKey(t, "")
	keys := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: "revoked-keys"},
		Data:       map[string][]byte{"ann": ann.Authorized},
	}
	require.NoError(t, cluster.client.Create(t.Context(), keys))
	commit := x.commitSigned(ann, time.Now(), map[string]string{"revoked-a/namespace.yaml": namespaceFile("revoked-a")})
	x.follow(func(r *v1alpha1.PolicyRepository) {
		r.Spec.Git.Verify = &v1alpha1.GitVerification{SecretRef: v1alpha1.SecretReference{Name: keys.Name}}
	})
	x.waitApplied(commit)
	trust := func(key *gittest.Key) {
		t.Helper()
		keys.Data = map[string][]byte{"key": key.Authorized}
		require.NoError(t, cluster.client.Update(t.Context(), keys))
		x.request()
	}
	trust(bob)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, "NotVerified", conditionReady(status).Reason, conditionReady(status).Message)
		assert.Equal(c, commit, status.Commits.Applied)
	})
	x.mustExist(namespace("revoked-a"))
	trust(ann)
	x.waitApplied(commit)
}
