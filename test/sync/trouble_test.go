package sync_test

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/gittest"
	"nstpl.dev/nstpl/test/operator"
)

// status returns a handler that answers with a status.
func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// cut returns a handler that sends half of Git's answers to requests of objects.
func cut(git http.Handler) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			git.ServeHTTP(w, r)
			return
		}
		recorder := httptest.NewRecorder()
		git.ServeHTTP(recorder, r)
		w.Header().Set("Content-Type", recorder.Header().Get("Content-Type"))
		_, _ = w.Write(recorder.Body.Bytes()[:recorder.Body.Len()/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
}

// setSecret sets the keys of the Secret with the credentials.
func (x *tree) setSecret(data map[string][]byte) {
	x.Helper()
	require.NoError(x, cluster.client.Update(x.Context(), &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: x.name + "-git"}, Data: data,
	}))
}

// setURL sets the URL of the repository.
func (x *tree) setURL(url string) {
	x.Helper()
	mergePatch(x, x.repository, fmt.Sprintf(`{"spec": {"git": {"url": %q}}}`, url))
}

// A commit that is being fetched is not applied once the PolicyRepository wants signatures.
func TestACommitOfTheSourceBeforeIsNotApplied(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	fetching := make(chan struct{})
	x := newTreeBehind(t, "verified", func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPost && hangs.CompareAndSwap(true, false) {
				_, err := io.Copy(io.Discard, r.Body)
				assert.NoError(t, err)
				close(fetching)
				<-r.Context().Done() // until nstpl-sync gives the answer up
				return
			}
			git.ServeHTTP(w, r)
		})
	})
	keys := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: "verified-keys"},
		Data:       map[string][]byte{"ann": gittest.NewKey(t, "").Authorized},
	}
	require.NoError(t, cluster.client.Create(t.Context(), keys))
	a := x.commit(map[string]string{"role.yaml": roleFile("verified-a", "get")})
	x.follow()
	x.waitApplied(a)
	hangs.Store(true)
	b := x.commit(map[string]string{"role.yaml": roleFile("verified-b", "get")})
	<-fetching
	mergePatch(t, x.repository, `{"spec": {"git": {"verify": {"secretRef": {"name": "verified-keys"}}}}}`)
	require.Contains(t, x.waitReason("NotVerified", a), "the commit "+b+" is not signed")
	x.mustNotExist(role("verified-b"))
	x.mustExist(role("verified-a"))
}

// Whatever a server does, the status says it, the commit in force stays in force, and the next one is applied when the
// server answers again.
func TestEveryFailureOfAServerIsReported(t *testing.T) {
	t.Parallel()
	var broken atomic.Pointer[http.HandlerFunc]
	var git http.Handler
	x := newTreeBehind(t, "troubled", func(next http.Handler) http.Handler {
		git = next
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if handler := broken.Load(); handler != nil {
				(*handler)(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	})
	root := filepath.Dir(x.git.Dir)
	key := gittest.NewKey(t, "")
	ssh := gittest.ServeSSH(t, root, gittest.SSH{Authorized: key})
	expired := gittest.ServeHTTPS(t, root, gittest.HTTPS{Username: "sync", Password: "secret", Expired: true})
	host, _, _ := strings.Cut(string(ssh.KnownHosts), " ")
	wrongHost := []byte(host + " " + string(gittest.NewKey(t, "").Authorized))
	good := map[string][]byte{"username": []byte("sync"), "password": []byte("secret"), "ca.crt": x.server.CA}
	answer := func(handler http.HandlerFunc) func() { return func() { broken.Store(&handler) } }
	files := map[string]string{
		"troubled-a/namespace.yaml": namespaceFile("troubled-a"), "viewers.yaml": bindingFile("viewers", "view", "ann"),
	}
	inForce := x.commit(files)
	x.follow()
	x.waitApplied(inForce)
	for i, test := range []struct {
		breakIt      func()
		reason, want string
	}{
		{answer(status(http.StatusForbidden)), "AccessDenied", "cannot be read with the credentials"},
		{answer(status(http.StatusNotFound)), "NotFound", "does not exist, or its existence is hidden"},
		{answer(status(http.StatusInternalServerError)), "Unreachable", "an error of the server (status 500)"},
		{answer(cut(git)), "Unreachable", "was cut before the answer was complete"},
		{func() {
			x.setSecret(map[string][]byte{"username": []byte("sync"), "password": []byte("x"), "ca.crt": x.server.CA})
		}, "AccessDenied", "rejects the credentials of the Secret (status 401)"},
		{func() {
			x.setSecret(map[string][]byte{
				"username": []byte("sync"), "password": []byte("secret"), "ca.crt": expired.CA,
			})
			x.setURL(expired.URL + "/troubled.git")
		}, "UntrustedServer", "has expired or is not valid yet"},
		{func() {
			x.setSecret(map[string][]byte{"identity": key.Private, "known_hosts": wrongHost})
			x.setURL(ssh.URL + "/troubled.git")
		}, "UntrustedServer", "which is not the one in known_hosts"},
	} {
		test.breakIt()
		next := with(files, "role.yaml", roleFile(fmt.Sprint("troubled-", i), "get"))
		commit := x.commit(next)
		x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
			ready := conditionReady(status)
			assert.Equal(c, test.reason, ready.Reason, ready.Message)
			assert.Contains(c, ready.Message, test.want)
			assert.Contains(c, ready.Message, "; commit "+inForce[:7]+" stays in force")
			assert.Equal(c, inForce, status.Commits.Applied)
		})
		require.NoError(t, program(t).Delete(t.Context(), space(x.name)))
		x.waitExact(files)
		broken.Store(nil)
		x.setSecret(good)
		x.setURL(x.server.URL + "/troubled.git")
		x.request()
		x.waitApplied(commit)
		x.waitExact(next)
		files, inForce = next, commit
	}
	// The same repository over SSH, and a server with a part of the history.
	x.setSecret(map[string][]byte{"identity": key.Private, "known_hosts": ssh.KnownHosts})
	x.setURL(ssh.URL + "/troubled.git")
	x.apply(with(files, "role.yaml", roleFile("troubled-ssh", "get")))
	files = with(files, "role.yaml", roleFile("troubled-shallow", "get"))
	commit := x.commit(files)
	x.git.Git(t, "clone", "--quiet", "--bare", "--depth=1", "file://"+x.git.Dir, filepath.Join(root, "shallow.git"))
	x.setURL(ssh.URL + "/shallow.git")
	x.waitApplied(commit)
	x.waitExact(files)
}

// After a change of the source, the PolicyRepository is not ready before the new one answers.
func TestANewSourceIsNotReadyBeforeItAnswers(t *testing.T) {
	t.Parallel()
	asked, answer := make(chan struct{}), make(chan struct{})
	isAsked := sync.OnceFunc(func() { close(asked) })
	x := newTreeBehind(t, "moved", func(git http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasPrefix(r.URL.Path, "/elsewhere.git") {
				isAsked()
				select {
				case <-answer:
				case <-r.Context().Done():
				}
			}
			git.ServeHTTP(w, r)
		})
	})
	inForce := x.commit(map[string]string{"moved-a/namespace.yaml": namespaceFile("moved-a")})
	x.follow()
	x.waitApplied(inForce)
	x.setURL(x.server.URL + "/elsewhere.git")
	<-asked
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		ready := conditionReady(status)
		assert.Equal(c, x.repository.Generation, ready.ObservedGeneration)
		assert.Equal(c, metav1.ConditionFalse, ready.Status)
		assert.Equal(c, "the source was changed, and is asked for its newest commit; commit "+inForce[:7]+" stays in force",
			ready.Message)
	})
	require.NoError(t, program(t).Delete(t.Context(), space(x.name)))
	x.waitExists(space(x.name))
	close(answer)
	x.waitReason("NotFound", inForce)
	x.setURL(x.server.URL + "/moved.git")
	x.waitApplied(inForce)
}

// Commits that arrive while another one is applied are applied, and the last one wins.
func TestTenCommitsAtOnce(t *testing.T) {
	t.Parallel()
	x := newTree(t, "busy")
	files := map[string]string{}
	for i := range 30 {
		name := fmt.Sprint("busy-n", i)
		files["team/"+name+"/namespace.yaml"] = namespaceFile(name)
	}
	x.commit(files)
	x.follow()
	x.waitExists(namespace("busy-n0")) // the others are still to come
	for i := range 10 {
		files["team/viewers.yaml"] = bindingFile(fmt.Sprint("viewers", i), "view", "ann")
		files["role.yaml"] = roleFile(fmt.Sprint("busy-", i), "get")
		x.commit(moved(files, "team/", fmt.Sprint("busy-team", i%2, "/")))
	}
	files = moved(files, "team/", "busy-last/")
	x.apply(files)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.EqualValues(c, 30, status.Namespaces)
		assert.Empty(c, status.Failures)
	})
}

// A tree and templates that people wrote have an effect on the same namespaces.
func TestATreeBesideTemplates(t *testing.T) {
	t.Parallel()
	x := newTree(t, "beside")
	handwritten := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "beside-team"},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: "beside" + v1alpha1.DepthLabelSuffix, Operator: metav1.LabelSelectorOpExists,
				}},
			}},
			Templates: []runtime.RawExtension{
				{Raw: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}}`)},
				{
					Raw: []byte(
						`{"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "own"}}`),
				},
			},
		},
	}
	require.NoError(t, cluster.client.Create(t.Context(), handwritten))
	files := map[string]string{
		"beside-a/namespace.yaml": namespaceFile("beside-a"),
		"viewers.yaml":            bindingFile("viewers", "view", "ann"),
		"revoked.yaml":            bindingFile("revoked", "edit", "bob"),
	}
	x.commit(files)
	x.follow()
	own := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "beside-a", Name: "own"}}
	x.waitExists(binding("beside-a", "beside.viewers"))
	x.waitExists(own)
	x.waitExists(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "beside-a", Name: "settings"}})

	// A directory with the name of the template is reported, and the namespace stays where it is. It keeps what it would
	// get there, and not what the commit revokes.
	more := moved(moved(files, "beside-a/", "beside-team/beside-a/"), "viewers.yaml", "beside-team/viewers.yaml")
	delete(more, "revoked.yaml")
	commit := x.commit(more)
	message := x.waitReason("ObjectsFailed", commit)
	require.Contains(t, message, "namespacetemplate.policy.nstpl.dev/beside-team: existed before the tree beside")
	x.mustExist(binding("beside-a", "beside.viewers"))
	x.waitGone(binding("beside-a", "beside.revoked"))
	x.mustExist(own)
	require.NoError(t, cluster.client.Delete(t.Context(), handwritten))
	x.waitApplied(commit)
	x.waitExact(more)
}

// Who may delete a namespace, or keep it from being changed, keeps no grants in force elsewhere by that.
func TestAFailingNamespaceDelaysNoRevocation(t *testing.T) {
	t.Parallel()
	x := newTree(t, "halted")
	files := map[string]string{
		"halted-a/namespace.yaml": namespaceFile("halted-a"), "halted-team/halted-b/namespace.yaml": namespaceFile("halted-b"),
		"role.yaml": roleFile("halted", "get"), "halted-team/viewers.yaml": bindingFile("viewers", "view", "ann"),
	}
	x.commit(files)
	x.follow()
	x.waitExact(files)

	kept := keepDeletedNamespace(t, "halted-a")
	delete(files, "role.yaml")
	delete(files, "halted-team/viewers.yaml")
	files["halted-team/halted-b/namespace.yaml"] += "  labels: {example.com/changed: \"yes\"}\n"
	commit := x.commit(files)
	x.waitGone(role("halted"))
	x.waitGone(binding("halted-b", "halted-team.viewers"))
	x.eventually(func(c *assert.CollectT) {
		found := namespace("halted-b")
		if assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(found), found)) {
			assert.Equal(c, "yes", found.Labels["example.com/changed"])
		}
	})
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, commit, status.Commits.Vetted)
		assert.NotEqual(c, commit, status.Commits.Applied, "the namespace is still missing")
	})
	releaseNamespace(t, kept)
	x.waitApplied(commit)
	x.waitExact(files)
}

// denyAfter is an admission policy that denies the creation of a namespace.
const denyAfter = `apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: denied}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}
  validations:
  - {expression: 'object.metadata.name != "denied-after"', message: denied by a test}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: denied}
spec: {policyName: denied, validationActions: [Deny]}
`

// A namespace is kept while another one cannot be created that may be its new name. It stays in its policyspace, so
// that the grants end that the commit takes away from it.
func TestAKeptNamespaceLosesWhatIsRevoked(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "policy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(denyAfter), 0o600))
	_, err := kubectl(t.Context(), "apply", "--filename", file)
	require.NoError(t, err)
	x := newTree(t, "denied")
	x.eventually(func(c *assert.CollectT) {
		assert.Error(c, cluster.client.Create(t.Context(), namespace("denied-after"), client.DryRunAll))
	})
	files := map[string]string{
		"denied-team/denied-before/namespace.yaml": namespaceFile("denied-before"),
		"denied-team/devs.yaml":                    bindingFile("devs", "edit", "ann"),
		"denied-stays/namespace.yaml":              namespaceFile("denied-stays"),
	}
	x.commit(files)
	x.follow()
	x.waitExact(files)

	files = map[string]string{
		"denied-after/namespace.yaml": namespaceFile("denied-after"),
		"denied-stays/namespace.yaml": namespaceFile("denied-stays"),
	}
	commit := x.commit(files)
	require.Contains(t, x.waitReason("ObjectsFailed", commit), "denied by a test")
	x.waitGone(binding("denied-before", "denied-team.devs"))
	x.mustExist(namespace("denied-before"))
	x.mustExist(space("denied-team"))

	_, err = kubectl(t.Context(), "delete", "--filename", file)
	require.NoError(t, err)
	x.waitApplied(commit)
	x.waitGone(namespace("denied-before"))
	x.waitGone(space("denied-team"))
}

// keepDeletedNamespace deletes a namespace, which an object with a finalizer keeps. It returns the object.
func keepDeletedNamespace(t *testing.T, name string) *corev1.ConfigMap {
	t.Helper()
	kept := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: name, Name: "kept", Finalizers: []string{"example.com/kept"},
	}}
	require.NoError(t, cluster.client.Create(t.Context(), kept))
	require.NoError(t, cluster.client.Delete(t.Context(), namespace(name)))
	return kept
}

// releaseNamespace removes the finalizer of keepDeletedNamespace.
func releaseNamespace(t *testing.T, kept *corev1.ConfigMap) {
	t.Helper()
	mergePatch(t, kept, `{"metadata": {"finalizers": null}}`)
}

// While the operator is down, commits are applied, and the operator populates the namespaces later. While nstpl-sync is
// down, the operator enforces the last commit.
func TestOneOfTheProgramsIsDown(t *testing.T) { //nolint:paralleltest // it stops the programs of all tests
	x := newTree(t, "down")
	files := map[string]string{
		"down-a/namespace.yaml": namespaceFile("down-a"), "role.yaml": roleFile("down-a", "get"),
		"viewers.yaml": bindingFile("viewers", "view", "ann"),
	}
	x.commit(files)
	x.follow()
	x.waitExact(files)

	require.NoError(t, cluster.sync.Kill())
	viewers := binding("down-a", "down.viewers")
	x.mustExist(viewers)
	viewers.Subjects[0].Name = "eve"
	require.NoError(t, cluster.client.Update(t.Context(), viewers))
	x.waitExact(files)
	require.NoError(t, cluster.client.Delete(t.Context(), role("down-a")))
	files = with(files, "down-b/namespace.yaml", namespaceFile("down-b"))
	x.commit(files)
	startSync(t, cluster.syncOptions)
	x.waitExact(files)

	require.NoError(t, cluster.operator.Kill())
	more := maps.Clone(files)
	more["down-c/namespace.yaml"] = namespaceFile("down-c")
	more["down-c/editors.yaml"] = bindingFile("editors", "edit", "bob")
	commit := x.commit(more)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, commit, status.Commits.Vetted)
	})
	var err error
	cluster.operator, err = operator.Start(cluster.operatorOptions)
	require.NoError(t, err)
	require.NoError(t, cluster.operator.AwaitReady(t.Context()))
	x.waitApplied(commit)
	x.waitExact(more)
}

// A template and a tree that declare the same label of a namespace do not replace each other's value without end: the
// value of the template stays until the template goes, and the tree says so.
func TestATreeKeepsTheLabelsOfTemplates(t *testing.T) {
	t.Parallel()
	x := newTree(t, "shared")
	team := func(value string) map[string]string {
		return map[string]string{"shared-a/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata:\n" +
			"  name: shared-a\n  labels: {example.com/tier: tree, example.com/team: " + value + "}\n"}
	}
	template := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: "shared-tier"},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{
					Key: "shared" + v1alpha1.DepthLabelSuffix, Operator: metav1.LabelSelectorOpExists,
				}},
			}},
			NamespaceMetadata: &v1alpha1.NamespaceMetadata{Labels: map[string]string{"example.com/tier": "template"}},
		},
	}
	require.NoError(t, cluster.client.Create(t.Context(), template))
	hasLabels := func(tier, team string) {
		t.Helper()
		ns := namespace("shared-a")
		x.eventually(func(c *assert.CollectT) {
			assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
			assert.Equal(c, []string{tier, team}, []string{ns.Labels["example.com/tier"], ns.Labels["example.com/team"]})
		})
	}
	commit := x.commit(team("one"))
	x.follow()
	x.waitApplied(commit)
	hasLabels("template", "one")

	commit = x.commit(team("two"))
	x.waitApplied(commit)
	hasLabels("template", "two")
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Contains(c, conditionReady(status).Message, "in 1 namespace, templates set labels or annotations that the tree "+
			"declares differently, the first is the label example.com/tier of namespace shared-a, by template shared-tier")
	})
	x.eventually(func(c *assert.CollectT) { // the operator has written what it writes
		assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(template), template))
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 1, Updated: 1, Populated: 1}, template.Status.Namespaces)
	})
	x.waitQuiet()
	before := x.versions("shared-a")
	for range 3 {
		x.waitQuiet()
	}
	require.Equal(t, before, x.versions("shared-a"))

	require.NoError(t, cluster.client.Delete(t.Context(), template))
	hasLabels("tree", "two")
}

// Once the objects of a tree are applied, nothing is written, however the files spell them.
func TestNothingIsWrittenWithoutAChange(t *testing.T) {
	t.Parallel()
	x := newTree(t, "idle")
	files := map[string]string{
		"idle-a/namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: idle-a\n  labels: {team: a}\n" +
			"  annotations: {example.com/empty: ''}\nspec: {}\n",
		"idle-a/quota.yaml": "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard: {cpu: 0.5, " +
			"memory: 1024Mi, requests.cpu: 1000m, limits.memory: 1e3}\n",
		"idle-a/role.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: none}\nrules: []\n",
		"quota.yaml": "apiVersion: v1\nkind: ResourceQuota\nmetadata: {name: q}\nspec:\n  hard: {pods: 1e1, cpu: 1500m, " +
			"memory: 2048Mi}\n",
		"aggregated.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: idle-all}\n" +
			"aggregationRule: {clusterRoleSelectors: [{matchLabels: {idle: x}}]}\nrules: []\n",
		"part.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: idle-part, labels: " +
			"{idle: x}}\nrules: [{apiGroups: [''], resources: [pods], resourceNames: [], verbs: [get]}]\n",
		"empty.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: idle-empty}\nrules: null\n",
		"short.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: idle}\n" +
			"roleRef: {kind: ClusterRole, name: idle-all}\nsubjects:\n- {kind: User, name: ann}\n" +
			"- {kind: ServiceAccount, namespace: idle-a, name: default}\n",
		"none.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata: {name: idle-none}\n" +
			"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: idle-all}\nsubjects: []\n",
		"viewers.yaml": "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: short}\n" +
			"roleRef: {kind: ClusterRole, name: idle-all}\nsubjects: [{kind: Group, name: g}]\n",
	}
	commit := x.commit(files)
	x.follow()
	x.waitApplied(commit)
	for _, name := range []string{"idle", "idle-a"} { // the operator applies the objects in the namespace
		template := &v1alpha1.NamespaceTemplate{}
		x.eventually(func(c *assert.CollectT) {
			assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKey{Name: name}, template))
			assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 1, Updated: 1, Populated: 1}, template.Status.Namespaces)
		})
	}
	aggregated := role("idle-all")
	x.eventually(func(c *assert.CollectT) {
		assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(aggregated), aggregated))
		assert.Len(c, aggregated.Rules, 1)
	})
	x.waitQuiet()
	before := x.versions("idle-a")
	for range 3 {
		x.waitQuiet()
	}
	require.Equal(t, before, x.versions("idle-a"))
}

// waitQuiet asks for a synchronization and waits until it is done.
func (x *tree) waitQuiet() {
	x.Helper()
	x.request()
	want := x.repository.Annotations[v1alpha1.SyncRequestedAnnotation]
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, want, status.RequestedAt)
		assert.Equal(c, metav1.ConditionTrue, conditionReady(status).Status, conditionReady(status).Message)
	})
}

// versions returns the resourceVersions of the objects of the tree, and of the policies in one of its namespaces.
func (x *tree) versions(ns string) map[string]string {
	x.Helper()
	found := map[string]string{}
	roles, bindings := &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}
	for _, list := range []client.ObjectList{roles, bindings} {
		require.NoError(x, cluster.client.List(x.Context(), list, client.InNamespace(ns)))
	}
	for _, role := range roles.Items {
		found["Role "+role.Name] = role.ResourceVersion
	}
	for _, binding := range bindings.Items {
		found["RoleBinding "+binding.Name] = binding.ResourceVersion
	}
	for _, object := range x.objects() {
		version := object.GetResourceVersion()
		if object.GetGeneration() > 0 {
			version = fmt.Sprint(object.GetGeneration()) // the operator writes the status
		}
		found[object.GetKind()+" "+object.GetName()] = version
	}
	return found
}
