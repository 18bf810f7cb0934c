package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
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
