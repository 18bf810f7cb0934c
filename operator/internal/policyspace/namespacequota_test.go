package policyspace

import (
	"fmt"
	"maps"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/quota"
)

// A policy space with room for many namespaces does not get a status that is too large to be stored. Nothing is
// written, so the quota has no client.
func TestReservationsForNamespacesAreLimited(t *testing.T) {
	t.Parallel()
	space := countedSpace(resourceList(string(quota.Namespaces), fmt.Sprint(10*maxReservations)), nil)
	for i := range maxReservations {
		space.Status.NamespaceReservations = append(space.Status.NamespaceReservations,
			reservationOf(fmt.Sprint("n", i), types.UID(fmt.Sprint(i)), ""))
	}
	q := &NamespaceQuota{writing: map[string]chan struct{}{}, totals: &namespaceTotals{
		census: censusOf(t, "1"), forest: hierarchy.NewForest([]*v1alpha1.PolicySpace{space}), hasForest: true,
	}}
	var pending *quota.PendingError
	require.ErrorAs(t, q.reserve(t.Context(), space, placing{reservation: reservationOf("new", "new", "")}), &pending)
	require.Equal(t, maxReservations, pending.Reserved)
}

// Users who create and delete policy spaces would fill the memory.
func TestQuotasForgetDeletedPolicySpaces(t *testing.T) {
	t.Parallel()
	space := &v1alpha1.PolicySpace{}
	space.Name, space.UID, space.ResourceVersion = "a", "1", "1"
	ofNamespaces := &NamespaceQuota{writing: map[string]chan struct{}{}}
	ofNamespaces.writingTo("a")
	ofNamespaces.writingTo("b")
	ofNamespaces.written.Written("a", space)
	ofNamespaces.spaceChanged(space, nil)
	require.Len(t, ofNamespaces.writing, 1)
	require.Contains(t, ofNamespaces.writing, "b")
	require.Empty(t, maps.Collect(ofNamespaces.written.Unobserved()))

	ofUsage := &QuotaAdmission{writers: map[string]*reservationWriter{}, sequence: newSequence()}
	ofUsage.writerOf("a")
	ofUsage.writerOf("b")
	ofUsage.written.Written("a", space)
	ofUsage.spaceChanged(space, nil)
	require.Len(t, ofUsage.writers, 1)
	require.Contains(t, ofUsage.writers, "b")
	require.Empty(t, maps.Collect(ofUsage.written.Unobserved()))
}
