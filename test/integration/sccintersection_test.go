package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// With --scc-match=intersection, both the creator and the service account of a pod need the permission, by a user name,
// a group or the verb use. Constraints for all users admit pods.
func TestSCCIntersectionNeedsBothSubjects(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	require.NoError(t, s.operator.Kill())
	require.NoError(t, s.startOperator(t.Context(), "--scc-match=intersection"))
	ns := s.createNamespace("a").Name
	jane := s.newAllVerbsClient("jane")
	s.eventually(func(c *assert.CollectT) {
		admitted := newPod(ns, "p")
		if assert.NoError(c, jane.Create(t.Context(), admitted, client.DryRunAll)) {
			assert.Equal(c, "restricted", admitted.Annotations[v1alpha1.SCCAnnotation])
		}
	})
	denied := "constraint privileged: not usable by serviceaccount: with --scc-match=intersection, both"
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, jane.Create(t.Context(), newPod(ns, "p", makesPrivileged), client.DryRunAll), denied)
	})
	s.bindRole(ns, v1alpha1.ClusterRoleKind, s.createPrivilegedRole(),
		rbacv1.Subject{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:" + ns})
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, jane.Create(t.Context(), newPod(ns, "p", makesPrivileged), client.DryRunAll))
	})
}
