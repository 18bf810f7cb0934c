package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// Owners do not write the condition in which commands and audits read what is wrong in their namespace.
func TestOwnersDoNotWriteTheConditionOfTheOperator(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("reported", configMap("a", "v"), reportsDrift)
	ns := s.createPopulatedNamespace("a")
	require.NoError(t, s.client.Patch(t.Context(), newConfigMap(ns.Name, "a"), mergePatch(`{"data": {"key": "changed"}}`)))
	expectDrift := func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "drifted")
	}
	s.waitCondition(ns, expectDrift)
	owner := s.newUserWithRules("owner", policyRule("*", "", "namespaces namespaces/status namespaces/finalize"),
		policyRule("create", v1alpha1.GroupVersion.Group, "namespacetemplates"))
	condition := func(kind, message string) client.Patch {
		return client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"status": {"conditions": [{"type": %q, `+
			`"status": "True", "reason": "Populated", "message": %q, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}}`,
			kind, message))
	}
	s.eventually(func(c *assert.CollectT) { // until the API server knows the rights
		assert.NoError(c, owner.Status().Patch(t.Context(), ns.DeepCopy(), condition("example.com/Own", "fine")))
	})
	expectForbidden(t, owner.Status().Patch(t.Context(), ns.DeepCopy(),
		condition(string(v1alpha1.NamespacePopulated), "1 object of "+template.Name)), "(nstpl:managed-namespace)")
	current := &corev1.Namespace{}
	require.NoError(t, owner.Get(t.Context(), client.ObjectKeyFromObject(ns), current))
	current.Status.Conditions, current.ResourceVersion = nil, ""
	expectForbidden(t, owner.Status().Update(t.Context(), current), "(nstpl:managed-namespace)")
	s.waitCondition(ns, expectDrift)
}
