package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"
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
