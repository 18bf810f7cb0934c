package integration_test

import (
	"crypto/tls"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
	"nstpl.dev/nstpl/test/operator"
)

// The operator finds out by the dry run of a Lease whether the API server calls its webhooks. A webhook denies the one
// name that belongs to the stored webhooks, in the operator's namespace, and no others.
func TestOnlyTheProbeIsDenied(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	other := s.createNamespace("other").Name

	s.eventually(func(c *assert.CollectT) { // the API server may call those that were stored before
		err := createLease(s, v1alpha1.OperatorNamespace, storedProbe(s))
		assert.True(c, apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(c, err, "probe.policy.nstpl.dev")
	})

	require.NoError(t, createLease(s, v1alpha1.OperatorNamespace, "nstpl-probe-0000"))
	require.NoError(t, createLease(s, v1alpha1.OperatorNamespace, ""), "the API server generates the name")
	require.NoError(t, createLease(s, other, storedProbe(s)))
}

// A replica that does not lead is not ready before a leader has written the webhooks.
func TestReplicaIsNotReadyBeforeALeaderHasWrittenTheWebhooks(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowClusterWithoutOperator(t)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.OperatorLease},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: new("another-replica"), LeaseDurationSeconds: new(int32(3600)),
			RenewTime: &metav1.MicroTime{Time: time.Now()},
		},
	}
	require.NoError(t, cluster.client.Create(t.Context(), lease))
	standby, err := operator.Start(operator.Options{
		Binary: operatorBinary, Dir: cluster.dir, Kubeconfig: cluster.operatorKubeconfig, Webhooks: cluster.webhookAddress,
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = standby.Kill() })
	s := newScope(t, cluster)
	s.eventually(func(c *assert.CollectT) { // until it serves its certificate
		connection, err := tls.Dial("tcp", standby.Webhooks, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test
		if assert.NoError(c, err) {
			assert.NoError(c, connection.Close())
		}
	})
	require.Error(t, standby.Get(t.Context(), standby.Probes, "/readyz", io.Discard))

	require.NoError(t, cluster.client.Delete(t.Context(), lease))
	require.NoError(t, standby.AwaitReady(t.Context()))
	require.NoError(t, cluster.checkVetting(t.Context()))
}

// createLease is a dry run of the creation of a Lease. If the name is empty, the API server generates one.
func createLease(s *testScope, namespace, name string) error {
	s.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if name == "" {
		lease.GenerateName = "lease-"
	}
	return s.client.Create(s.t.Context(), lease, client.DryRunAll)
}

// storedProbe returns the name that the stored webhook denies.
func storedProbe(s *testScope) string {
	s.t.Helper()
	stored := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Name: v1alpha1.WebhookName}, stored))
	last := stored.Webhooks[len(stored.Webhooks)-1]
	_, name, found := strings.Cut(last.MatchConditions[0].Expression, " == '")
	require.True(s.t, found, "%s: %s", last.Name, last.MatchConditions[0].Expression)
	name, _, _ = strings.Cut(name, "'")
	return name
}
