package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// leave has a template with deletionPolicy Orphan no longer select a namespace, in which its RoleBinding then stays.
func leave(s *testScope, template *v1alpha1.NamespaceTemplate, ns *corev1.Namespace) {
	s.t.Helper()
	s.patchNamespace(ns, labelPatch("of", `"others"`))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "deletionPolicy is Orphan")
		assert.Contains(c, condition.Message, "template "+template.Name+" no longer matches")
	})
}

// What a template leaves behind in a namespace follows the template, although no revision selects the namespace.
func TestObjectsThatStayFollowTheTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("grants", grantTo("readers", "a"), withSelectorLabel("ours"))
	deleted := s.createTemplate("deleted", grantTo("viewers", "a"), withSelectorLabel("ours"))
	ns := s.createPopulatedNamespace("a", withLabel("of", "ours"))
	leave(s, template, ns)

	exemption := newExemption(ns, "x", template)
	require.NoError(t, s.client.Create(t.Context(), exemption))
	waitExemption(s, exemption, v1alpha1.ExemptionNothingMatches, metav1.ConditionFalse, `not "ours"`)
	s.updateTemplate(template, withSelectorLabel("theirs"))
	waitExemption(s, exemption, v1alpha1.ExemptionNothingMatches, metav1.ConditionFalse, `not "theirs"`)
	require.NoError(t, s.client.Delete(t.Context(), exemption))

	s.waitPresent(ns, grantTo("readers", "a"))
	s.updateTemplate(template, deletesObjects)
	s.waitAbsent(ns, grantTo("readers"))

	s.delete(deleted)
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "template "+deleted.Name+" does not exist")
	})
	s.waitPresent(ns, grantTo("viewers", "a"))
}

// Where a template is authoritative for RoleBindings, one that a deleted template left behind is undeclared.
func TestAGrantOfADeletedTemplateIsUndeclared(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("grants", grantTo(undeclaredName, "a"), withSelectorLabel("ours"))
	ns := s.createPopulatedNamespace("a", withLabel("of", "ours"))
	leave(s, template, ns)
	s.createTemplate("all", grantTo("readers", "a"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Authoritative = []v1alpha1.GroupKind{{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}}
	})
	s.waitPresent(ns, documents(grantTo("readers", "a"), grantTo(undeclaredName, "a")))
	s.delete(template)
	s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.subjectsOf(ns, undeclaredName)) })
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
}
