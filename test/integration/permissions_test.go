package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The operator reports which permission it lacks, and continues as soon as it has that permission.
func TestMissingPermissionIsReported(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  ports:\n  - {port: 80}\n"
	const rule = `{apiGroups: [""], resources: ["services"], verbs: [list, watch, create, patch, delete]}`
	template := s.createTemplate("defaults", documents(configMap("settings", "v"), service))
	ns := s.createNamespace("a")
	s.waitPresent(ns, configMap("settings", "v"))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, rule)
		assert.Contains(c, condition.Message, v1alpha1.AggregateLabel)
	})
	s.waitEvent(ns, corev1.EventTypeWarning, "ObjectFailed", rule)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		accepted := templateCondition(status, v1alpha1.TemplateAccepted)
		assert.Equal(c, metav1.ConditionTrue, accepted.Status)
		assert.Contains(c, accepted.Message, rule)
		assert.Equal(c, int32(1), status.Namespaces.Failed)
	})
	require.Zero(t, s.countWrites(ns)["patch services"], "the operator must not try writes for which it lacks the permission")

	// This is the rule from the message.
	_, err := s.kubectl(t.Context(), `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: services
  labels:
    policy.nstpl.dev/aggregate-to-operator: "true"
rules:
- `+rule+"\n", "apply", "--filename", "-")
	require.NoError(t, err)
	s.waitPopulated(ns)
	s.waitPresent(ns, service)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 1, Updated: 1, Populated: 1}, status.Namespaces)
		assert.NotContains(c, templateCondition(status, v1alpha1.TemplateAccepted).Message, "may not")
	})
}

// A template cannot bind a ClusterRole that the operator may not bind.
func TestForbiddenClusterRoleIsNotBound(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const binding = `
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: everything
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: $(CREATOR)}
`
	s.createTemplate("defaults", documents(binding, configMap("settings", "v")))
	ns := s.createNamespace("a", withCreator("jane"))
	s.waitPresent(ns, configMap("settings", "v"))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, "everything")
		assert.Contains(c, condition.Message, "bind")
	})
	s.waitAbsent(ns, binding)
}

// The operator has the permissions that it needs, and no administrator's.
func TestOperatorIsNotClusterAdmin(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		allowed bool
		args    []string
	}{
		{true, []string{"patch", "configmaps"}},
		{true, []string{"patch", "namespaces", "--subresource=status"}},
		{true, []string{"bind", "clusterroles.rbac.authorization.k8s.io/view"}},
		{false, []string{"bind", "clusterroles.rbac.authorization.k8s.io/cluster-admin"}},
		{false, []string{"get", "configmaps"}},
		{false, []string{"get", "secrets"}},
		{false, []string{"update", "namespaces"}},
		{false, []string{"delete", "namespaces"}},
		{false, []string{"create", "pods"}},
		{false, []string{"create", "clusterroles.rbac.authorization.k8s.io"}},
		{false, []string{"create", "clusterrolebindings.rbac.authorization.k8s.io"}},
		{false, []string{"impersonate", "users"}},
		{false, []string{"create", "namespacetemplates.policy.nstpl.dev"}},
	} {
		args := append([]string{"auth", "can-i", "--as", operatorUser, "--all-namespaces"}, test.args...)
		_, err := sharedCluster.kubectl(t.Context(), "", args...)
		require.Equal(t, test.allowed, err == nil, "%v: %v", test.args, err)
	}
}
