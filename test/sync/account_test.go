package sync_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// With serviceAccountName, objects are created, changed and deleted only if that ServiceAccount may.
func TestATreeCanDoNoMoreThanItsServiceAccount(t *testing.T) {
	t.Parallel()
	x := newTree(t, "account")
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "create", "patch"}},
		{
			APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"namespacetemplates", "policyspaces"},
			Verbs: []string{"get", "create", "patch", "delete", "use"},
		},
		{
			APIGroups: []string{""}, Resources: []string{"resourcequotas"},
			Verbs: []string{"create", "patch", "delete"},
		},
		{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles", "rolebindings"},
			Verbs: []string{"create", "patch", "delete"},
		},
		{
			APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{"view"},
			Verbs: []string{"bind"},
		},
	}
	granted := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "granted-to-account"}, Rules: rules}
	grant := func(more ...rbacv1.PolicyRule) {
		granted.Rules = append(granted.Rules, more...)
		require.NoError(t, cluster.client.Update(t.Context(), granted))
	}
	require.NoError(t, cluster.client.Create(t.Context(), granted))
	require.NoError(t, cluster.client.Create(t.Context(), &corev1.ServiceAccount{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: "account"},
	}))
	require.NoError(t, cluster.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "granted-to-account"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: granted.Name},
		Subjects: []rbacv1.Subject{
			{Kind: rbacv1.ServiceAccountKind, Namespace: v1alpha1.OperatorNamespace, Name: "account"},
		},
	}))
	const user = "system:serviceaccount:nstpl-system:account"

	files := map[string]string{
		"viewers.yaml":                          bindingFile("viewers", "view", "ann"),
		"account-a/namespace.yaml":              namespaceFile("account-a"),
		"account-team/viewers.yaml":             bindingFile("viewers", "view", "bob"),
		"account-team/account-b/namespace.yaml": namespaceFile("account-b"),
	}
	commit := x.commit(files)
	x.follow(func(repository *v1alpha1.PolicyRepository) { repository.Spec.ServiceAccountName = "account" })
	x.waitApplied(commit)
	x.waitExists(binding("account-a", "account.viewers"))
	ns := namespace("account-a")
	x.mustExist(ns)
	require.Equal(t, user, ns.Annotations[v1alpha1.CreatorAnnotation])

	// Everyone who may change one directory can bind a role there that the account may not bind.
	unbindable := without(files, "viewers.yaml")
	unbindable["account-team/admins.yaml"] = bindingFile("admins", "cluster-admin", "bob")
	commit = x.commit(unbindable)
	require.Contains(t, x.waitReason("ObjectsFailed", commit), "nstpl-operator-tree-account.cluster-admin")
	x.waitGone(binding("account-a", "account.viewers"))
	x.mustExist(binding("account-b", "account-team.viewers"))
	x.mustNotExist(binding("account-b", "account-team.admins"))

	files["role.yaml"] = roleFile("account-lister", "list")
	commit = x.commit(files)
	require.Contains(t, x.waitReason("ObjectsFailed", commit), `User "`+user+`" cannot patch resource "clusterroles"`)
	x.mustNotExist(role("account-lister"))
	clusterRoles := rbacv1.PolicyRule{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"},
		Verbs: []string{"create", "patch", "delete"},
	}
	grant(clusterRoles)
	x.waitStatus(func(c *assert.CollectT, status v1alpha1.PolicyRepositoryStatus) {
		if assert.Len(c, status.Failures, 1) {
			assert.Contains(c, status.Failures[0].Message, "is attempting to grant RBAC permissions not currently held")
		}
	})
	x.mustNotExist(role("account-lister"))
	grant(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}})
	x.waitApplied(commit)
	x.mustExist(role("account-lister"))

	// What a namespace needs stays with it, but no grant in the cluster.
	commit = x.commit(without(files, "role.yaml", "account-team/viewers.yaml", "account-team/account-b/namespace.yaml"))
	require.Contains(t, x.waitReason("ObjectsFailed", commit), `User "`+user+`" cannot delete resource "namespaces"`)
	x.mustExist(namespace("account-b"))
	x.mustExist(space("account-team"))
	x.mustExist(&v1alpha1.NamespaceTemplate{ObjectMeta: metav1.ObjectMeta{Name: "account-team"}})
	x.mustExist(binding("account-b", "account-team.viewers"))
	x.mustNotExist(role("account-lister"))
	grant(rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"delete"}})
	x.waitApplied(commit)
	x.waitGone(namespace("account-b"))
	x.waitGone(space("account-team"))
}

// The operator's own account is exempt from checks, so a tree cannot have it.
func TestATreeCannotHaveTheOperatorsServiceAccount(t *testing.T) {
	t.Parallel()
	repository := &v1alpha1.PolicyRepository{
		ObjectMeta: metav1.ObjectMeta{Name: "operators-account"},
		Spec: v1alpha1.PolicyRepositorySpec{
			Git: &v1alpha1.GitSource{URL: "https://git.example.com/a.git"}, Path: "a",
			ServiceAccountName: "nstpl-operator",
		},
	}
	err := cluster.client.Create(t.Context(), repository, client.DryRunAll)
	require.ErrorContains(t, err, "nstpl-operator is the ServiceAccount of the operator")
}
