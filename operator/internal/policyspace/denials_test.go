package policyspace

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// endingReplica is a client of ResourceQuotas whose replica shuts down during the first patch.
type endingReplica struct {
	corev1client.ResourceQuotaInterface
	shutDown context.CancelFunc
	patches  []string
}

func (r *endingReplica) ResourceQuotas(string) corev1client.ResourceQuotaInterface { return r }

func (*endingReplica) List(context.Context, metav1.ListOptions) (*corev1.ResourceQuotaList, error) {
	return &corev1.ResourceQuotaList{Items: []corev1.ResourceQuota{{ObjectMeta: metav1.ObjectMeta{UID: "u"}}}}, nil
}

func (r *endingReplica) Patch(
	ctx context.Context, _ string, _ types.PatchType, body []byte, _ metav1.PatchOptions, _ ...string,
) (*corev1.ResourceQuota, error) {
	if ctx.Err() == nil {
		r.patches = append(r.patches, string(body))
		r.shutDown()
	}
	return nil, ctx.Err()
}

// The limit by which Kubernetes counts again does not stay in the ResourceQuotas of users.
func TestAReplicaThatShutsDownCompletesARecount(t *testing.T) {
	t.Parallel()
	ctx, shutDown := context.WithCancel(t.Context())
	quotas := &endingReplica{shutDown: shutDown}
	require.NoError(t, (&Denials{quotas: quotas}).recount(ctx, "n"))
	require.Equal(t, []string{
		`{"metadata": {"uid": "u"}, "spec": {"hard": {"count/recounts.policy.nstpl.dev": "0"}}}`,
		`{"metadata": {"uid": "u"}, "spec": {"hard": {"count/recounts.policy.nstpl.dev": null}}}`,
	}, quotas.patches)
}
