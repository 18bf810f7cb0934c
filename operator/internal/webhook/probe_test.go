package webhook

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A replica that does not lead finds the probe of the webhooks that the leader has written.
func TestProbeOf(t *testing.T) {
	t.Parallel()
	others := []admissionregistrationv1.ValidatingWebhook{{Name: "template.policy.nstpl.dev"}}
	written, err := newProbe(others)
	require.NoError(t, err)
	require.Empty(t, probeOf(others))
	require.Equal(t, written, probeOf(append(others, written.webhook(Endpoint{URL: "https://localhost"}, nil))))
}

// refusedLeases answers every creation with an error, or with none.
type refusedLeases struct {
	coordinationclient.LeaseInterface
	err error
}

func (l refusedLeases) Create(
	_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions,
) (*coordinationv1.Lease, error) {
	return lease, l.err
}

// storedWebhooks is a cache with one configuration.
type storedWebhooks struct {
	cache.Cache
	webhooks []admissionregistrationv1.ValidatingWebhook
	version  string
}

func (s storedWebhooks) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	stored := into.(*admissionregistrationv1.ValidatingWebhookConfiguration)
	stored.Name, stored.Webhooks, stored.ResourceVersion = key.Name, s.webhooks, s.version
	return nil
}

// standby returns the readiness check of a replica that does not lead, with an answer to its probes.
func standby(stored cache.Cache, answer error) *readiness {
	return &readiness{configurations: &Configurations{Stored: &Stored{
		caches: map[string]cache.Cache{v1alpha1.WebhookName: stored},
		leases: refusedLeases{err: answer}, inUse: map[string]string{},
	}}}
}

// Only the denial of the probe itself shows that the API server calls the webhooks of the leader.
func TestReadinessOfAReplicaThatDoesNotLead(t *testing.T) {
	t.Parallel()
	others := []admissionregistrationv1.ValidatingWebhook{{Name: "template.policy.nstpl.dev"}}
	written, err := newProbe(others)
	require.NoError(t, err)
	probed := append(slices.Clone(others), written.webhook(Endpoint{URL: "https://localhost"}, nil))
	for name, test := range map[string]struct {
		webhooks []admissionregistrationv1.ValidatingWebhook
		answer   error
		want     string
	}{
		"called":         {probed, errors.New(`admission webhook "probe.policy.nstpl.dev" denied the request`), ""},
		"not called yet": {probed, nil, errNotCalled.Error()},
		"another error": {
			probed, errors.New("timeout"), "probe whether the API server calls the webhooks: timeout",
		},
		"no webhooks yet":     {nil, errors.New("timeout"), errNotCalled.Error()},
		"an earlier operator": {others, errors.New("timeout"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := standby(storedWebhooks{webhooks: test.webhooks, version: "1"}, test.answer)
			err := r.checkStandby(t.Context())
			if test.want != "" {
				require.EqualError(t, err, test.want)
				return
			}
			require.NoError(t, err)
			r.configurations.Stored = standby(storedWebhooks{}, nil).configurations.Stored
			require.NoError(t, r.checkStandby(t.Context()), "a replica that was ready once stays so")
		})
	}
}
