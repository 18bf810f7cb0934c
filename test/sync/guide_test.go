package sync_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The directories of the Git User Guide's example.
const (
	backend = "online/shipping-app-backend/"
	dev     = backend + "shipping-dev/"
	staging = backend + "shipping-staging/"
	prod    = backend + "shipping-prod/"
)

// fooCorp returns the files of the Git User Guide's example.
func fooCorp() map[string]string {
	return map[string]string{
		"audit/namespace.yaml":               namespaceFile("audit"),
		dev + "namespace.yaml":               namespaceFile("shipping-dev"),
		staging + "namespace.yaml":           namespaceFile("shipping-staging"),
		prod + "namespace.yaml":              namespaceFile("shipping-prod"),
		dev + "job-creator-role.yaml":        asRole(ruleFile("job-creator", "batch", "jobs", "create")),
		dev + "job-creator-rolebinding.yaml": boundFile("job-creators", "Role", "job-creator", "Group", "job-team"),
		dev + "quota.yaml":                   quotaFile("pod-quota", "2"),
		backend + "pod-creator-rolebinding.yaml": boundFile("pod-creators", "ClusterRole", "pod-creator", "Group",
			"shipping-app-backend-team"),
		backend + "quota.yaml":         quotaFile("pod-quota", "3"),
		"viewers-rolebinding.yaml":     boundFile("viewers", "ClusterRole", "view", "Group", "foo-corp-viewers"),
		"pod-creator-clusterrole.yaml": ruleFile("pod-creator", "''", "pods", "create, get"),
		"namespace-reader-clusterrole.yaml": ruleFile("namespace-reader", "''", "namespaces",
			"get, watch, list"),
		"namespace-reader-clusterrolebinding.yaml": asClusterRoleBinding(
			boundFile("namespace-readers", "ClusterRole", "namespace-reader", "User", "cheryl@foo-corp.com")),
		"pod-security-policy.yaml": "apiVersion: extensions/v1beta1\nkind: PodSecurityPolicy\nmetadata:\n  name: psp\n" +
			"spec:\n  privileged: false\n  seLinux: {rule: RunAsAny}\n  supplementalGroups: {rule: RunAsAny}\n" +
			"  runAsUser: {rule: RunAsAny}\n  fsGroup: {rule: RunAsAny}\n  volumes: ['*']\n",
		"OWNERS": "approvers: [ann]\n",
	}
}

func boundFile(name, roleKind, role, kind, subject string) string {
	return fmt.Sprintf("kind: RoleBinding\napiVersion: rbac.authorization.k8s.io/v1\nmetadata:\n  name: %s\nsubjects:\n"+
		"- kind: %s\n  name: %s\n  apiGroup: rbac.authorization.k8s.io\nroleRef:\n  kind: %s\n  name: %s\n"+
		"  apiGroup: rbac.authorization.k8s.io\n", name, kind, subject, roleKind, role)
}

func asClusterRoleBinding(binding string) string {
	return strings.Replace(binding, "kind: RoleBinding", "kind: ClusterRoleBinding", 1)
}

func ruleFile(name, group, resource, verbs string) string {
	return fmt.Sprintf("kind: ClusterRole\napiVersion: rbac.authorization.k8s.io/v1\nmetadata:\n  name: %s\nrules:\n"+
		"- apiGroups: [%s]\n  resources: [%s]\n  verbs: [%s]\n", name, group, resource, verbs)
}

func asRole(role string) string { return strings.Replace(role, "kind: ClusterRole", "kind: Role", 1) }

func quotaFile(name, pods string) string {
	return fmt.Sprintf("kind: ResourceQuota\napiVersion: v1\nmetadata:\n  name: %s\nspec:\n  hard:\n    pods: %q\n",
		name,
		pods)
}

// with returns files with one more, or another one.
func with(files map[string]string, path, content string) map[string]string {
	more := maps.Clone(files)
	more[path] = content
	return more
}

// moved returns files with a directory at another place.
func moved(files map[string]string, from, to string) map[string]string {
	all := map[string]string{}
	for path, content := range files {
		if rest, below := strings.CutPrefix(path, from); below {
			path = to + rest
		}
		all[path] = content
	}
	return all
}

// apply commits files and waits until the cluster has exactly their objects.
func (x *tree) apply(files map[string]string) {
	x.Helper()
	hash := x.commit(files)
	x.waitApplied(hash)
	x.waitExact(files)
}

// may reports whether a user or group may do something with pods, or another resource, in a namespace.
func (x *tree) may(subject, verb, resource, ns string) bool {
	x.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: subject, Groups: []string{subject},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: ns, Verb: verb, Resource: resource},
	}}
	require.NoError(x, cluster.client.Create(x.Context(), review))
	return review.Status.Allowed
}

// waitMay waits until a user or group may do something in some namespaces, and not in others.
func (x *tree) waitMay(subject, verb, resource string, want map[string]bool) {
	x.Helper()
	x.eventually(func(c *assert.CollectT) {
		for ns, allowed := range want {
			assert.Equal(c, allowed, x.may(subject, verb, resource, ns), "%s in %q", subject, ns)
		}
	})
}

func (x *tree) createPod(ns, name string, options ...client.CreateOption) error {
	return cluster.client.Create(x.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, options...)
}

// The cluster follows the example of the Git User Guide through what the guide says.
func TestGitUserGuide(t *testing.T) {
	t.Parallel()
	x := newTree(t, "foo-corp")
	// It exists before and is declared: the tree updates it.
	require.NoError(t, cluster.client.Create(t.Context(), role("namespace-reader")))
	// It exists before and is not declared: the tree leaves it alone.
	accountant := role("pod-accountant")
	require.NoError(t, cluster.client.Create(t.Context(), accountant))
	files := fooCorp()
	x.commit(files)
	x.follow()
	x.waitExact(files)
	for _, chapter := range []struct {
		name string
		play func(*tree, map[string]string)
	}{
		{"RoleBindings are inherited", (*tree).inherit},
		{"quotas of policyspaces limit the sum", (*tree).limit},
		{"the guarantees for the cluster's policies hold", (*tree).guaranteeCluster},
		{"the guarantees for the policies of namespaces hold", (*tree).guaranteeNamespaces},
		{"a commit that violates the constraints changes nothing", (*tree).violate},
		{"directories are renamed, moved and deleted", (*tree).reorganize},
	} {
		if !t.Run(chapter.name, func(t *testing.T) {
			step := *x
			step.TB = t
			chapter.play(&step, maps.Clone(files))
			step.apply(files) // every chapter is reverted
		}) {
			return
		}
	}
	before := accountant.DeepCopy()
	x.mustExist(accountant)
	require.Equal(t, before.ResourceVersion, accountant.ResourceVersion)
}

func (x *tree) inherit(files map[string]string) {
	x.waitMay("shipping-app-backend-team", "create", "pods", map[string]bool{
		"shipping-dev": true, "shipping-staging": true, "shipping-prod": true, "audit": false,
	})
	x.waitMay("foo-corp-viewers", "list", "pods", map[string]bool{
		"shipping-dev": true, "shipping-staging": true, "shipping-prod": true, "audit": true, "default": false,
	})
	x.waitMay("cheryl@foo-corp.com", "list", "namespaces", map[string]bool{"": true})
	// A RoleBinding of the same name at another level does not collide.
	files[prod+"more.yaml"] = boundFile("pod-creators", "ClusterRole", "pod-creator", "User", "oncall")
	x.apply(files)
	x.waitMay("oncall", "create", "pods", map[string]bool{"shipping-prod": true, "shipping-dev": false})
	// RoleBindings move up and down a level.
	x.apply(moved(files, backend+"pod-creator-rolebinding.yaml", "online/pods.yaml"))
	x.apply(moved(files, prod+"more.yaml", staging+"more.yaml"))
}

func (x *tree) limit(files map[string]string) {
	for i, ns := range []string{"shipping-dev", "shipping-staging", "shipping-prod"} {
		x.eventually(func(c *assert.CollectT) { assert.NoError(c, x.createPod(ns, fmt.Sprint("p", i))) })
	}
	denied := func(space string, limit int) { // soon: a new quota is in force when the usage has been counted
		x.Helper()
		x.eventually(func(c *assert.CollectT) {
			assert.ErrorContains(c, x.createPod("shipping-prod", "fourth", client.DryRunAll), fmt.Sprintf(
				"exceeded quota in policyspace %q, requested: pods=4, limit: pods=%d", space, limit))
		})
	}
	denied("shipping-app-backend", 3)
	// A quota may be below the usage: existing pods stay.
	x.apply(with(files, backend+"quota.yaml", quotaFile("pod-quota", "1")))
	denied("shipping-app-backend", 1)
	pods := &corev1.PodList{}
	require.NoError(x, cluster.client.List(x.Context(), pods, client.InNamespace("shipping-prod")))
	require.Len(x, pods.Items, 1)
	// The nearest quota may allow more than one further up.
	higher := with(without(files, backend+"quota.yaml"), "online/quota.yaml", quotaFile("pod-quota", "3"))
	x.apply(higher)
	denied("online", 3)
	x.apply(without(files, backend+"quota.yaml"))
	x.eventually(func(c *assert.CollectT) { assert.NoError(c, x.createPod("shipping-prod", "fourth")) })
	for _, ns := range []string{"shipping-dev", "shipping-staging", "shipping-prod"} {
		require.NoError(x, cluster.client.DeleteAllOf(x.Context(), &corev1.Pod{}, client.InNamespace(ns),
			client.GracePeriodSeconds(0)))
	}
}

// guaranteeCluster follows the table "Cluster Scoped Policies".
func (x *tree) guaranteeCluster(files map[string]string) {
	// Declared, and different in the cluster, or missing.
	reader := role("namespace-reader")
	x.mustExist(reader)
	reader.Rules = []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"*"}}}
	require.NoError(x, cluster.client.Update(x.Context(), reader))
	x.waitExact(files)
	require.NoError(x, cluster.client.Delete(x.Context(), reader))
	x.waitExact(files)
	readers := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "namespace-readers"}}
	x.mustExist(readers)
	readers.Subjects = append(readers.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: "eve"})
	require.NoError(x, cluster.client.Update(x.Context(), readers))
	x.waitExact(files)
	// Another user gives the name to a binding of another role, whose roleRef cannot be changed.
	x.replace(&rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "namespace-readers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	})
	x.waitExact(files)
	// Git gives the binding another role.
	other := with(files, "namespace-reader-clusterrolebinding.yaml", strings.Replace(
		files["namespace-reader-clusterrolebinding.yaml"], "name: namespace-reader\n", "name: pod-creator\n", 1))
	x.apply(other)
	// Added to Git, removed from Git.
	x.apply(with(files, "quota-viewer-clusterrole.yaml", ruleFile("quota-viewer", "''", "resourcequotas", "get")))
	x.mustExist(role("quota-viewer"))
	x.apply(files)
	x.waitGone(role("quota-viewer"))
}

// replace deletes an object, and creates another one of its name before it is created again.
func (x *tree) replace(object client.Object) {
	x.Helper()
	x.eventually(func(c *assert.CollectT) {
		other := object.DeepCopyObject().(client.Object)
		assert.NoError(c, client.IgnoreNotFound(cluster.client.Delete(x.Context(), other)))
		assert.NoError(c, cluster.client.Create(x.Context(), other))
	})
}

// guaranteeNamespaces follows the table "Namespace Scoped Policies".
func (x *tree) guaranteeNamespaces(files map[string]string) {
	creators := binding("shipping-prod", "shipping-app-backend.pod-creators")
	x.mustExist(creators)
	creators.Subjects[0].Name = "eve"
	require.NoError(x, cluster.client.Update(x.Context(), creators))
	x.waitExact(files)
	require.NoError(x, cluster.client.Delete(x.Context(), creators))
	x.waitExact(files)
	x.replace(&rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: creators.Namespace, Name: creators.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
	})
	x.waitExact(files)
	admin := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "shipping-prod", Name: "secret-admin"}}
	for _, undeclared := range []client.Object{
		admin, binding("audit", "extra"),
		&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "audit", Name: "extra"}},
	} {
		if extra, ok := undeclared.(*rbacv1.RoleBinding); ok {
			extra.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"}
		}
		require.NoError(x, cluster.client.Create(x.Context(), undeclared))
		x.waitGone(undeclared)
	}
	x.apply(with(files, prod+"secret-admin.yaml", asRole(ruleFile("secret-admin", "''", "secrets", "get"))))
	x.mustExist(admin)
	x.apply(without(files, backend+"pod-creator-rolebinding.yaml"))
	x.waitGone(creators)
}

func (x *tree) violate(files map[string]string) {
	applied := x.git.Git(x, "rev-parse", "main")
	maps.Copy(files, map[string]string{
		dev + "below/namespace.yaml": namespaceFile("below"),
		backend + "role.yaml":        asRole(ruleFile("r", "''", "pods", "get")),
		backend + "second.yaml":      quotaFile("second", "1"),
		"online/role.yaml":           ruleFile("r", "''", "pods", "get"),
		"online/audit/x.yaml":        boundFile("b", "ClusterRole", "view", "User", "u"),
		"kube-x/namespace.yaml":      namespaceFile("kube-x"),
		prod + "other.yaml":          strings.Replace(quotaFile("q", "1"), "name: q", "name: q\n  namespace: audit", 1),
	})
	commit := x.commit(files)
	x.waitReason("Violations", commit)
	rules := map[string]bool{}
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		assert.Equal(c, applied, status.Commits.Applied)
		for _, violation := range status.Violations {
			rules[violation.Rule] = true
			assert.True(c, strings.HasPrefix(violation.Path, "foo-corp/"), violation.Path)
		}
	})
	for _, rule := range []string{
		"ns-leaf", "ps-role", "multi-quota", "root-only", "name-unique", "name-reserved", "ns-name-match",
	} {
		require.Contains(x, rules, rule)
	}
	x.waitExact(fooCorp())
}

func (x *tree) reorganize(files map[string]string) {
	uids := x.uids("shipping-dev", "shipping-staging", "shipping-prod", "audit")
	require.NoError(x, x.createPod("shipping-staging", "workload"))
	granted := x.watchAccess("shipping-staging", "shipping-app-backend-team")
	// Renaming a policyspace has no effect on namespaces, workloads and access.
	x.apply(moved(files, backend, "online/shipping-backend/"))
	// Moving one keeps access, too.
	x.apply(moved(files, backend, "shipping-app-backend/"))
	x.apply(files)
	granted()
	// A namespace that moves out of a policyspace loses its policies, and nothing else.
	x.apply(moved(files, staging, "shipping-staging/"))
	x.waitMay("shipping-app-backend-team", "create", "pods", map[string]bool{"shipping-staging": false})
	require.Equal(x, uids, x.uids("shipping-dev", "shipping-staging", "shipping-prod", "audit"))
	x.mustExist(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shipping-staging", Name: "workload"}})
	// Renaming a namespace deletes it and creates another.
	renamed := moved(without(files, "audit/namespace.yaml"), "audit/", "auditing/")
	x.apply(with(renamed, "auditing/namespace.yaml", namespaceFile("auditing")))
	x.waitGone(namespace("audit"))
	// Deleting a policyspace would delete its namespaces: a person confirms that.
	few := map[string]string{}
	for name, content := range files {
		if !strings.HasPrefix(name, backend) {
			few[name] = content
		}
	}
	few["auditing/namespace.yaml"] = namespaceFile("auditing")
	commit := x.commit(few)
	x.waitReason("DeletionsPending", commit)
	x.waitExact(few, "shipping-dev", "shipping-prod", "shipping-staging")
	x.annotate(v1alpha1.ConfirmedCommitAnnotation, commit)
	x.waitApplied(commit)
	x.waitExact(few)
	// The revert creates all of them again, and deletes the one that only this chapter had.
}

// uids returns the UIDs of namespaces.
func (x *tree) uids(names ...string) map[string]string {
	x.Helper()
	found := map[string]string{}
	for _, name := range names {
		ns := namespace(name)
		x.mustExist(ns)
		found[name] = string(ns.UID)
	}
	return found
}
