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
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/operator"
)

// The operator finds out by a SelfSubjectAccessReview whether the API server calls its webhooks. A webhook denies
// reviews of the one path that belongs to the stored webhooks, and no others.
func TestOnlyTheProbeIsDenied(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	user := s.impersonate(t, s.name("jane"))
	nonResource := func(path string) authorizationv1.SelfSubjectAccessReviewSpec {
		return authorizationv1.SelfSubjectAccessReviewSpec{
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: "get", Path: path},
		}
	}

	s.eventually(func(c *assert.CollectT) { // the API server may call those that were stored before
		_, err := review(t, user, nonResource(s.storedProbe()))
		assert.True(c, apierrors.IsForbidden(err), "%v", err)
		assert.ErrorContains(c, err, "probe.policy.nstpl.dev")
	})

	for name, spec := range map[string]authorizationv1.SelfSubjectAccessReviewSpec{
		"a path":                     nonResource("/healthz"),
		"the path of other webhooks": nonResource("/probe.policy.nstpl.dev/0000"),
		"a resource": {ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Resource: "pods", Name: s.storedProbe(),
		}},
	} {
		_, err := review(t, user, spec)
		require.NoError(t, err, name)
	}
}

// A replica that does not lead is not ready before a leader has written the webhooks.
func TestReplicaIsNotReadyBeforeALeaderHasWrittenTheWebhooks(t *testing.T) {
	t.Parallel()
	cluster := newClusterWithoutOperator(t)
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

// review creates a SelfSubjectAccessReview.
func review(
	t *testing.T, user kubernetes.Interface, spec authorizationv1.SelfSubjectAccessReviewSpec,
) (*authorizationv1.SelfSubjectAccessReview, error) {
	t.Helper()
	return user.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(),
		&authorizationv1.SelfSubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
}

// storedProbe returns the path that the stored webhook denies.
func (s *testScope) storedProbe() string {
	s.t.Helper()
	stored := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Name: v1alpha1.WebhookName}, stored))
	last := stored.Webhooks[len(stored.Webhooks)-1]
	_, path, found := strings.Cut(last.MatchConditions[0].Expression, "path == '")
	require.True(s.t, found, "%s: %s", last.Name, last.MatchConditions[0].Expression)
	path, _, _ = strings.Cut(path, "'")
	return path
}
