package sync_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/gittest"
	"nstpl.dev/nstpl/test/operator"
)

// tree is a tree of policies in a Git repository, and the PolicyRepository with which the cluster follows it.
type tree struct {
	testing.TB
	// name is the name of the tree, the PolicyRepository and the Git repository.
	name       string
	git        *gittest.Repository
	server     *gittest.HTTPSServer
	repository *v1alpha1.PolicyRepository
}

// timeout is how long a test waits for what must happen.
const timeout = time.Minute

// pollInterval is the time between two checks of a condition.
const pollInterval = 50 * time.Millisecond

// newTree creates an empty Git repository.
func newTree(t testing.TB, name string) *tree {
	t.Helper()
	return newTreeBehind(t, name, nil)
}

// newTreeBehind creates an empty Git repository on a server with a handler in front of Git's.
func newTreeBehind(t testing.TB, name string, wrap func(git http.Handler) http.Handler) *tree {
	t.Helper()
	root := t.TempDir()
	server := gittest.ServeHTTPS(t, root, gittest.HTTPS{Username: "sync", Password: "secret", Wrap: wrap})
	return &tree{TB: t, name: name, git: gittest.Init(t, root, name+".git"), server: server}
}

// follow creates the PolicyRepository. It asks every ten seconds, which no test waits for: see commit.
func (x *tree) follow(changes ...func(*v1alpha1.PolicyRepository)) {
	x.Helper()
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: x.name + "-git"},
		StringData: map[string]string{"username": "sync", "password": "secret", "ca.crt": string(x.server.CA)},
	}
	require.NoError(x, cluster.client.Create(x.Context(), secret))
	x.followSpec(v1alpha1.PolicyRepositorySpec{
		Git: &v1alpha1.GitSource{
			URL: x.server.URL + "/" + x.name + ".git", SecretRef: &v1alpha1.SecretReference{Name: secret.Name},
		},
		Path: x.name,
	}, changes...)
}

// followSpec creates the PolicyRepository.
func (x *tree) followSpec(spec v1alpha1.PolicyRepositorySpec, changes ...func(*v1alpha1.PolicyRepository)) {
	x.Helper()
	x.repository = &v1alpha1.PolicyRepository{ObjectMeta: metav1.ObjectMeta{Name: x.name}, Spec: spec}
	for _, change := range changes {
		change(x.repository)
	}
	require.NoError(x, cluster.client.Create(x.Context(), x.repository))
	x.Cleanup(func() {
		if x.Failed() {
			x.explain()
		}
	})
}

// mergePatch changes an object by a merge patch.
func mergePatch(t testing.TB, object client.Object, body string) {
	t.Helper()
	require.NoError(t, cluster.client.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(body))))
}

// startSync starts the nstpl-sync of all tests after it has ended, and returns when it is ready.
func startSync(t testing.TB, options operator.Options) {
	t.Helper()
	var err error
	cluster.sync, err = operator.StartSync(options)
	require.NoError(t, err)
	require.NoError(t, cluster.sync.AwaitReady(context.WithoutCancel(t.Context())))
}

// explain logs what may explain why the test failed.
func (x *tree) explain() {
	for _, args := range [][]string{
		{"get", "policyrepositories", x.name, "--output=yaml"},
		{"get", "namespaces", "--selector=" + v1alpha1.TreeLabel + "=" + x.name, "--output=yaml"},
		{"get", "namespacetemplates", "--selector=" + v1alpha1.TreeLabel + "=" + x.name, "--output=wide"},
		{"get", "namespacetemplates", "--selector=" + v1alpha1.TreeLabel + "=" + x.name, "--output=yaml"},
	} {
		out, err := kubectl(context.Background(), args...)
		x.Log(out, err)
	}
	x.Log(cluster.sync.Log(""))
	x.Log(cluster.operator.Log(""))
}

// commit commits files of the tree, whose paths are relative to it, and asks for a synchronization.
func (x *tree) commit(files map[string]string) string {
	x.Helper()
	hash := x.git.Commit(x, x.commitOf(files))
	if x.repository != nil {
		x.request()
	}
	return hash
}

// commitOf returns a commit of files of the tree, whose paths are relative to it.
func (x *tree) commitOf(files map[string]string) gittest.Commit {
	all := map[string]string{}
	for path, content := range files {
		all[x.name+"/"+path] = content
	}
	return gittest.Commit{Files: all, Message: fmt.Sprintf("Commit %d files", len(files))}
}

// request asks for a synchronization now.
func (x *tree) request() {
	x.Helper()
	x.annotate(v1alpha1.SyncRequestedAnnotation, time.Now().Format(time.RFC3339Nano))
}

// waitRequestServed asks for a synchronization and waits until its result is in the status.
func (x *tree) waitRequestServed() {
	x.Helper()
	x.request()
	want := x.repository.Annotations[v1alpha1.SyncRequestedAnnotation]
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, want, status.RequestedAt)
	})
}

func (x *tree) annotate(key, value string) {
	x.Helper()
	mergePatch(x, x.repository, fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, key, value))
}

// suspend suspends or resumes the synchronization.
func (x *tree) suspend(suspended bool) {
	x.Helper()
	mergePatch(x, x.repository, fmt.Sprintf(`{"spec": {"suspend": %t}}`, suspended))
}

// waitStatus waits until a status is as expected.
func (x *tree) waitStatus(check func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus)) {
	x.Helper()
	require.EventuallyWithT(x, func(c *assert.CollectT) {
		repository := &v1alpha1.PolicyRepository{}
		if !assert.NoError(c, cluster.client.Get(x.Context(), client.ObjectKeyFromObject(x.repository), repository)) {
			return
		}
		check(c, repository.Status)
	}, timeout, pollInterval)
}

// assertPending asserts that the deletion of some namespaces waits for the confirmation of a commit.
func assertPending(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus, commit string, namespaces ...string) {
	pending := status.PendingDeletions
	if !assert.NotNil(c, pending) {
		return
	}
	assert.Equal(c, commit, pending.Commit)
	assert.Equal(c, namespaces, pending.Namespaces)
	assert.EqualValues(c, len(namespaces), pending.Total)
}

// waitReason waits until the Ready condition has a reason, and returns its message.
func (x *tree) waitReason(reason, commit string) string {
	x.Helper()
	var message string
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		condition := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		if !assert.NotNil(c, condition) {
			return
		}
		assert.Equal(c, reason, condition.Reason, condition.Message)
		assert.Equal(c, commit, status.Commits.Fetched)
		message = condition.Message
	})
	return message
}

// waitApplied waits until a commit is in force.
func (x *tree) waitApplied(commit string) {
	x.Helper()
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, commit, status.Commits.Applied)
		condition := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady)
		if assert.NotNil(c, condition) {
			assert.Equal(c, metav1.ConditionTrue, condition.Status, "%s: %s", condition.Reason, condition.Message)
		}
	})
}

// conditionReady returns the Ready condition of a status, or an empty one.
func conditionReady(status v1alpha1.PolicyRepositoryStatus) metav1.Condition {
	if found := apimeta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); found != nil {
		return *found
	}
	return metav1.Condition{}
}

// waitExists waits until an object exists.
func (x *tree) waitExists(object client.Object) {
	x.Helper()
	require.EventuallyWithT(x, func(c *assert.CollectT) {
		assert.NoError(c, cluster.client.Get(x.Context(), client.ObjectKeyFromObject(object), object))
	}, timeout, pollInterval)
}

// waitGone waits until an object does not exist or is being deleted.
func (x *tree) waitGone(object client.Object) {
	x.Helper()
	require.EventuallyWithT(x, func(c *assert.CollectT) {
		err := cluster.client.Get(x.Context(), client.ObjectKeyFromObject(object), object)
		assert.True(c, apierrors.IsNotFound(err) || err == nil && object.GetDeletionTimestamp() != nil, "%v", err)
	}, timeout, pollInterval)
}

// mustExist fails if an object does not exist, or is being deleted.
func (x *tree) mustExist(object client.Object) {
	x.Helper()
	require.NoError(x, cluster.client.Get(x.Context(), client.ObjectKeyFromObject(object), object))
	require.Nil(x, object.GetDeletionTimestamp())
}

// mustNotExist fails if an object exists.
func (x *tree) mustNotExist(object client.Object) {
	x.Helper()
	err := cluster.client.Get(x.Context(), client.ObjectKeyFromObject(object), object)
	require.True(x, apierrors.IsNotFound(err), "%v", err)
}

// program returns the client of a ServiceAccount. It may delete a policy space of a tree that is in use.
func program(t testing.TB) client.Client {
	t.Helper()
	return impersonate(t, "system:serviceaccount:ci:program", "system:masters")
}

// impersonate returns the client of a user.
func impersonate(t testing.TB, user string, groups ...string) client.Client {
	t.Helper()
	config := rest.CopyConfig(cluster.RESTConfig())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	c, err := client.New(config, client.Options{Scheme: cluster.client.Scheme()})
	require.NoError(t, err)
	return c
}

func role(name string) *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func binding(ns, name string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}}
}

func space(name string) *v1alpha1.PolicySpace {
	return &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// Files of trees.

func namespaceFile(name string) string {
	return "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: " + name + "\n"
}

func bindingFile(name, role string, users ...string) string {
	var subjects strings.Builder
	for _, user := range users {
		fmt.Fprintf(&subjects, "- {apiGroup: rbac.authorization.k8s.io, kind: User, name: %s}\n", user)
	}
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata:\n  name: " + name +
		"\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: " + role + "}\nsubjects:\n" +
		subjects.String()
}

func roleFile(name, verb string) string {
	return "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: " + name +
		"\nrules:\n- apiGroups: ['']\n  resources: [pods]\n  verbs: [" + verb + "]\n"
}
