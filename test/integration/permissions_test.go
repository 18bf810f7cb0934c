package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A template with a kind that the operator may not populate is denied with the rule that is missing. If the operator
// loses the rule later, namespaces and templates report it, and the operator continues as soon as it has the rule
// again.
func TestMissingPermissionIsReported(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	const service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\nspec:\n  ports:\n  - {port: 80}\n"
	const rule = `{apiGroups: [""], resources: ["services"], verbs: [list, watch, create, patch, delete]}`
	// This is the rule from the message.
	const role = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: services
  labels:
    policy.nstpl.dev/aggregate-to-operator: "true"
rules:
- ` + rule + "\n"
	objects := documents(configMap("settings", "v"), service)
	err := s.client.Create(t.Context(), s.newTemplate("defaults", objects))
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "the operator may not list, watch, create, patch, delete services")
	require.ErrorContains(t, err, rule)
	require.ErrorContains(t, err, v1alpha1.AggregateLabel)

	s.applyYAML(role)
	// Admission waits until the rule is one of the operator's, so that both can be applied together.
	template := s.createTemplate("defaults", objects)
	_, err = s.kubectl(t.Context(), "", "delete", "clusterrole", "services")
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, s.client.Create(t.Context(), s.newTemplate("other", service), client.DryRunAll), rule)
	})
	ns := s.createNamespace("a")
	s.waitPresent(ns, configMap("settings", "v"))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, "services")
	})

	// The template can be disabled and enlarged by nothing but kinds that the operator may populate.
	disabled := mergePatch(`{"metadata": {"annotations": {"` + v1alpha1.TemplateApplyAnnotation + `": "` +
		v1alpha1.TemplateApplyDisable + `"}}}`)
	require.NoError(t, s.client.Patch(t.Context(), template.DeepCopy(), disabled, client.DryRunAll))
	require.NoError(t, s.client.Delete(t.Context(), template.DeepCopy(), client.DryRunAll))

	s.applyYAML(role)
	s.waitPopulated(ns)
	s.waitPresent(ns, service)
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
	err := s.client.Create(t.Context(), s.newTemplate("defaults", documents(binding, configMap("settings", "v"))))
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, `spec.templates[0].roleRef: rolebinding.rbac.authorization.k8s.io/everything: `+
		`the operator may not bind ClusterRole "cluster-admin": add a ClusterRole with the label `+
		`policy.nstpl.dev/aggregate-to-operator: "true" and the rule {apiGroups: ["rbac.authorization.k8s.io"], `+
		`resources: ["clusterroles"], resourceNames: ["cluster-admin"], verbs: [bind]}`)
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
