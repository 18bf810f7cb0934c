package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The probe is in v1alpha1.WebhookName, so the other configurations are written before.
func TestTheConfigurationWithTheProbeIsTheLast(t *testing.T) {
	t.Parallel()
	c := Chain{{Name: "attribute-rules"}, {Name: "attributes", Configuration: "own"}, {Name: "hold"}}
	require.Equal(t, []string{"own", v1alpha1.WebhookName}, c.configurations())
}
