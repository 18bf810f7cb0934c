package policyspace

import (
	"testing"

	"github.com/stretchr/testify/require"
	toolscache "k8s.io/client-go/tools/cache"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/quota"
)

func TestCountsAll(t *testing.T) {
	t.Parallel()
	space := countedSpace(resourceList("pods", "3", "services", "2"), nil)
	space.Status.Hard = resourceList("pods", "3", "secrets", "9")
	require.True(t, countsAll(resourceList("pods", "1"), space),
		"services are not enforced yet, secrets no longer limited")
	require.False(t, countsAll(resourceList("services", "1"), space))
	require.True(t, countsAll(nil, &v1alpha1.PolicySpace{}))
}

func TestUncountedNamespaces(t *testing.T) {
	t.Parallel()
	space := countedSpace(resourceList("pods", "3", "services", "2"), nil)
	require.Equal(t, []string{"b", "c"}, uncountedNamespaces(space, []string{"a", "b", "c"}, map[string]quota.Usage{
		"a": {Used: resourceList("pods", "1", "services", "0")}, "b": {Used: resourceList("pods", "1")},
	}))
	require.Empty(t, uncountedNamespaces(&v1alpha1.PolicySpace{}, []string{"a"}, nil))
}

// Otherwise a quota that is set later would count them.
func TestReservationsEndWithTheQuota(t *testing.T) {
	t.Parallel()
	indexer := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
		policySpaceIndex: indexPolicySpaces,
	})
	require.NoError(t, indexer.Add(namespaceIn("a", "s", "s")))
	spaces := &Spaces{Members: members{indexer}, Leader: &leadership.Leader{Client: noObjects{}}}
	space := countedSpace(resourceList("pods", "3"), resourceList("pods", "2"), reserved("a", "2", "5"))
	space.Spec.Quota = nil
	namespaces, observed, err := spaces.observe(t.Context(), space)
	require.NoError(t, err)
	status, _ := nextStatus(space, namespaces, observed, position{}, enforcement{})
	require.Empty(t, status.Reservations)
}
