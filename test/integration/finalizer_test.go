package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A template with the deletionPolicy Delete is deleted after its objects. A user who may only patch templates could have
// it deleted before, so that its grants stay.
func TestTheFinalizerOfATemplateKeepsUntilItsGrantsAreDeleted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	patcher := s.newTemplateAuthor("patcher")
	template := s.createTemplate("grants", documents(grantTo("owner", "owner"), configValue("one")), deletesObjects)
	ns := s.createPopulatedNamespace("a")
	remove := s.addFinalizer(ns, theConfigMap("config"))
	s.delete(template)
	s.waitAbsent(ns, grantTo("owner"))
	const abandon = `{"metadata": {"finalizers": null}}`
	require.ErrorContains(t, patcher.Patch(t.Context(), template.DeepCopy(), mergePatch(abandon)),
		"may not create or patch configmaps in all namespaces")
	deleter := s.newTemplateAuthor("deleter", policyRule("delete", "", "configmaps"),
		policyRule("delete", rbacv1.GroupName, "rolebindings"))
	const orphan = `{"spec": {"deletionPolicy": "Orphan", "templates": []}}`
	require.ErrorContains(t, deleter.Patch(t.Context(), template.DeepCopy(), mergePatch(orphan)),
		"may not create or patch configmaps in all namespaces")
	kept := s.createTemplate("kept", configMap("kept", "v"), deletesObjects)
	require.ErrorContains(t, patcher.Patch(t.Context(), kept.DeepCopy(), mergePatch(abandon)), "may not")
	require.NoError(t, s.client.Patch(t.Context(), kept.DeepCopy(), mergePatch(abandon)), "an administrator")
	remove()
	s.waitDeleted(template)
	s.delete(&v1alpha1.NamespaceTemplate{ObjectMeta: kept.ObjectMeta})
}

// What an earlier template of the same name has left does not keep a template.
func TestObjectsOfAnEarlierTemplateKeepNoTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	earlier := s.createTemplate("t", documents(configMap("a", "1"), podQuota("left")))
	ns := s.createPopulatedNamespace("a")
	s.waitPresent(ns, documents(configMap("a", "1"), podQuota("left")))
	s.delete(earlier)
	s.waitDeleted(earlier)
	later := s.createTemplate("t", configMap("a", "2"), deletesObjects)
	s.waitPresent(ns, documents(configMap("a", "2"), podQuota("left")))
	s.delete(later)
	s.waitDeleted(later)
	s.waitAbsent(ns, configMap("a", ""))
	s.waitPresent(ns, podQuota("left"))
}
