package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"

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
	kept := s.createTemplate("kept", configMap("kept", "v"), deletesObjects)
	require.ErrorContains(t, patcher.Patch(t.Context(), kept.DeepCopy(), mergePatch(abandon)), "may not")
	require.NoError(t, s.client.Patch(t.Context(), kept.DeepCopy(), mergePatch(abandon)), "an administrator")
	remove()
	s.waitDeleted(template)
	s.delete(&v1alpha1.NamespaceTemplate{ObjectMeta: kept.ObjectMeta})
}
