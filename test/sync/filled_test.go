package sync_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/test/controlplane"
)

// Every user who may patch a namespace may fill it with managedFields, so that the API server stores no apply. A label
// that the tree declares comes back all the same.
func TestAFilledNamespaceGetsTheLabelsOfItsTree(t *testing.T) {
	t.Parallel()
	x := newTree(t, "filled")
	const label = "pod-security.kubernetes.io/enforce"
	commit := x.commit(map[string]string{
		"filled-a/namespace.yaml": namespaceFile("filled-a") + "  labels: {" + label + ": restricted}\n",
	})
	x.follow()
	x.waitApplied(commit)
	require.NoError(t, cluster.client.Create(t.Context(), &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "filled-owner"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"patch"}},
		},
	}))
	require.NoError(t, cluster.client.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "filled-owner"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "filled-owner"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "filled-owner"}},
	}))
	owner, ns := impersonate(t, "filled-owner"), namespace("filled-a")
	x.eventually(func(c *assert.CollectT) { // until the API server knows the permission
		assert.NoError(c, owner.Patch(t.Context(), ns.DeepCopy(), client.MergeFrom(ns)))
	})
	controlplane.FillManagers(t, owner, ns.Name, label)
	x.eventually(func(c *assert.CollectT) {
		found := &corev1.Namespace{}
		assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
		assert.Equal(c, "restricted", found.Labels[label])
	})

	const longer = "pod-security.kubernetes.io/enforce-of-the-second-commit"
	controlplane.FillManagers(t, owner, ns.Name, "unused")
	x.commit(map[string]string{
		"filled-a/namespace.yaml": namespaceFile("filled-a") + "  labels: {" + longer + ": restricted}\n",
	})
	x.eventually(func(c *assert.CollectT) {
		found := &corev1.Namespace{}
		assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
		assert.NotContains(c, found.Labels, label)
		assert.Equal(c, "restricted", found.Labels[longer])
	})
}
