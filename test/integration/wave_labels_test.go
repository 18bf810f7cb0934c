package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A label by which waves select is not set by templates any more. So a user who may only change how a template is
// rolled out could switch off the labels of all others.
func TestWavesDoNotSwitchOffLabelsOfTemplates(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	pauser := s.newTemplateAuthor("pauser")
	key := "set-" + s.id
	setting := s.createTemplate("a", configValue("one"), labelsNamespaces(key, "x"))
	rolledOut := s.createTemplate("b", configMap("other", "v"))
	ns := s.createPopulatedNamespace("n")
	waitLabels(s, ns, key, "x")
	waves := func(label string) error {
		return pauser.Patch(t.Context(), rolledOut.DeepCopy(), mergePatch(
			`{"spec": {"rollout": {"waves": [{"selector": {"matchLabels": {"`+label+`": "x"}}}]}}}`))
	}
	require.ErrorContains(t, waves(key), "which template "+setting.Name+" sets")
	require.NoError(t, waves("free-"+s.id))
	s.patchLabel(ns, key, "other")
	waitLabels(s, ns, key, "x")
}
