package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// An administrator narrows a template that requires permission. The author may not take that back without the verb use,
// although the wider revision is still in force.
func TestAPausedRolloutDoesNotWidenAGuardedTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	author := s.newTemplateAuthor("author", policyRule("create patch delete", "", "configmaps"))
	template := s.createTemplate("guarded", configValue("one"), requiresUse)
	s.waitRollout(template, v1alpha1.RolloutComplete)
	patch := func(spec string) error {
		return author.Patch(t.Context(), template.DeepCopy(), mergePatch(`{"spec": `+spec+`}`))
	}
	require.NoError(t, patch(`{"rollout": {"paused": true}}`))
	s.updateTemplate(template, s.selectsClass("class", "gold")) // by an administrator
	s.waitRollout(template, v1alpha1.RolloutPaused)
	const needs = "needs the verb use on all namespacetemplates"
	require.ErrorContains(t, patch(`{"namespaces": {"labelSelector": {"matchLabels": {"class": null}}}}`), needs)
	require.ErrorContains(t, patch(`{"namespaces": {"labelSelector": {"matchLabels": {"class": "silver"}}}}`), needs)
	require.NoError(t, patch(`{"namespaces": {"labelSelector": {"matchLabels": {"more": "x"}}}}`), "a narrower one")
	require.NoError(t, patch(`{"rollout": null}`))
}

// The label that names a tree decides where undeclared objects are deleted, also for an earlier revision in force that
// alone is authoritative.
func TestTheTreeOfAnAuthoritativeRevisionIsVetted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	deletes := policyRule("delete", rbacv1.GroupName, "rolebindings")
	bare, author := s.newTemplateAuthor("bare"), s.newTemplateAuthor("author", deletes)
	template := s.createTemplate("only", "", func(template *v1alpha1.NamespaceTemplate) {
		template.Labels = map[string]string{v1alpha1.TreeLabel: s.name("corp")}
		template.Spec.Authoritative = []v1alpha1.GroupKind{{Group: rbacv1.GroupName, Kind: "RoleBinding"}}
	})
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.createPopulatedNamespace("a")
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		pausesRollout(template)
		template.Spec.Authoritative = nil
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	leaves := mergePatch(`{"metadata": {"labels": {"` + v1alpha1.TreeLabel + `": null}}}`)
	expectForbidden(t, bare.Patch(t.Context(), template.DeepCopy(), leaves),
		"namespaces would have an earlier revision until the rollout reaches them")
	require.NoError(t, bare.Patch(t.Context(), template.DeepCopy(), mergePatch(`{"metadata": {"labels": {"a": "b"}}}`)),
		"a label without a meaning")
	require.NoError(t, author.Patch(t.Context(), template.DeepCopy(), leaves))

	// The label of a template of which no revision is authoritative has no meaning either.
	other := s.createTemplate("other", configValue("one"))
	s.waitRollout(other, v1alpha1.RolloutComplete)
	require.NoError(t, bare.Patch(t.Context(), other,
		mergePatch(`{"metadata": {"labels": {"`+v1alpha1.TreeLabel+`": "x"}}}`)))
}

// A warning about a paused rollout tells all that waits, and what happens at once, not only by the last edit.
func TestEditsOfAPausedTemplateWarnOfAllThatWaits(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	admin, warnings := s.newWarnedUser(s.name("admin"), "system:masters")
	template := s.createTemplate("grants", documents(grantTo("owner", "a"), configValue("one")))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		pausesRollout(template)
		s.selectsClass("class", "gold")(template)
		withObjects(t, documents(grantTo("owner", "a"), grantTo("new", "b"), configValue("one")))(template)
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	patch := func(body string) []string {
		t.Helper()
		require.NoError(t, admin.Patch(t.Context(), template.DeepCopy(), mergePatch(body)))
		s.waitRollout(template, v1alpha1.RolloutPaused)
		return warnings.drain()
	}
	waits := "the rollout is paused, so existing namespaces do not get the newest revision until you run " +
		"\"kubectl nstpl rollout resume " + template.Name + "\"; " +
		"they do not get what it adds to the grants of rolebinding/new"
	require.Equal(t, []string{waits}, patch(`{"spec": {"driftPolicy": "Report"}}`))
	require.Equal(t, []string{waits + "; what it removes from the grants of rolebinding/owner is taken away at once"},
		patch(`{"spec": {"deletionPolicy": "Delete"}}`), "in namespaces that it no longer selects")
	require.Equal(t,
		[]string{waits + "; namespaces that it no longer selects lose all objects of the template at once, " +
			"because the template requires permission"},
		patch(`{"metadata": {"annotations": {"`+v1alpha1.RequirePermissionAnnotation+`": "true"}}}`))
	require.Empty(t, patch(`{"metadata": {"labels": {"a": "b"}}}`))
}
