package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// A user with all rights on ControllerRevisions neither forges a revision of a template, to which an administrator would
// roll back, nor changes or deletes one. The UID of its owner alone makes a revision one of the template.
func TestUsersDoNotWriteTheRevisionsOfTemplates(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("a", configMap("a", "v"))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	stored := &appsv1.ControllerRevision{}
	require.NoError(t, s.client.Get(t.Context(),
		client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: template.Name + "-1"}, stored))
	user := s.newUserWithRules("user", policyRule("*", "apps", "controllerrevisions"),
		policyRule("create "+v1alpha1.VerbOptOut, v1alpha1.GroupVersion.Group, "namespacetemplates"))
	owner := stored.OwnerReferences[0]
	owner.APIVersion, owner.Kind = "v1", "ConfigMap"
	for _, name := range []string{template.Name + "-999", v1alpha1.AutoOptOutConfigMap} {
		forged := stored.DeepCopy()
		forged.ObjectMeta = metav1.ObjectMeta{
			Namespace: stored.Namespace, Name: name, Labels: stored.Labels, OwnerReferences: []metav1.OwnerReference{owner},
		}
		forged.Revision = 999
		expectForbidden(t, user.Create(t.Context(), forged, client.DryRunAll), "decides what nstpl does")
	}
	expectForbidden(t, user.Patch(t.Context(), stored.DeepCopy(), mergePatch(`{"revision": 999}`)),
		"decides what nstpl does")
	expectForbidden(t, user.Delete(t.Context(), stored), "ControllerRevision "+stored.Name)
	s.delete(template)
	s.eventually(func(c *assert.CollectT) {
		err := s.client.Get(t.Context(), client.ObjectKeyFromObject(stored), stored)
		assert.True(c, apierrors.IsNotFound(err), "it is deleted with the template: %v", err)
	})
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
