package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// Authors of templates may write ConfigMaps in all namespaces, but not those by which nstpl decides.
func TestAuthorsDoNotWriteTheRecordsOfTheOperator(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	author := s.newTemplateAuthor("author", policyRule("*", "", "configmaps"))
	for _, name := range []string{v1alpha1.SelectorsConfigMap, v1alpha1.AutoOptOutConfigMap} {
		record := newConfigMap(v1alpha1.OperatorNamespace, name)
		expectForbidden(t, author.Patch(t.Context(), record.DeepCopy(), mergePatch(`{"data": {"users": "mallory"}}`)),
			"decides what nstpl does")
		expectForbidden(t, author.Delete(t.Context(), record), "decides what nstpl does")
	}
	expectForbidden(t, author.Create(t.Context(), newConfigMap(v1alpha1.OperatorNamespace, "nstpl-sync-"+s.name("forged"))),
		"decides what nstpl does")
	other := newConfigMap(v1alpha1.OperatorNamespace, s.name("other"))
	require.NoError(t, author.Create(t.Context(), other))
	require.NoError(t, author.Delete(t.Context(), other))

	// Who may opt out of all templates may list users who are opted out.
	listing := s.newUserWithRules("listing", policyRule("patch", "", "configmaps"),
		policyRule("create "+v1alpha1.VerbOptOut, v1alpha1.GroupVersion.Group, "namespacetemplates"))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, listing.Patch(t.Context(), &corev1.ConfigMap{
			ObjectMeta: newConfigMap(v1alpha1.OperatorNamespace, v1alpha1.AutoOptOutConfigMap).ObjectMeta,
		}, mergePatch(`{"metadata": {"annotations": {"example.com/a": null}}}`)))
	})
	expectForbidden(t, listing.Patch(t.Context(), newConfigMap(v1alpha1.OperatorNamespace, v1alpha1.SelectorsConfigMap),
		mergePatch(`{"data": {"a": "b"}}`)), "decides what nstpl does")
}
