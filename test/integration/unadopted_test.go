package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A namespace that a tree does not adopt stays outside of its policy spaces, but is counted in them. A quota that comes
// later counts it, too: otherwise the policy space would deny everything, since it waits for the count.
func TestLaterQuotasCountNamespacesThatAreNotAdopted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("legacy")
	s.waitInitialized(ns)
	s.createSpace("old", "")
	s.moveNamespace(ns.Name, "old")
	s.waitInSpace(ns.Name, "old")

	tree := s.name("corp")
	for _, space := range []*v1alpha1.PolicySpace{s.newSpace("corp", ""), s.newSpace("team", "corp")} {
		space.Labels = map[string]string{v1alpha1.TreeLabel: tree}
		require.NoError(t, s.client.Create(t.Context(), space))
	}
	s.moveNamespace(ns.Name, "team")
	waitNotAdopted(s, ns, tree)

	corp := &v1alpha1.PolicySpace{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: tree}, corp))
	changed := corp.DeepCopy()
	changed.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: resourceList("pods", "5")}
	require.NoError(t, s.client.Patch(t.Context(), changed, client.MergeFrom(corp)))
	s.waitCounted(ns.Name)
	s.waitUsage("corp", "pods: 0/5")
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Create(t.Context(), newPod(ns.Name, "a"), client.DryRunAll))
	})
}
