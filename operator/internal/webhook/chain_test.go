package webhook

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The probe is in v1alpha1.WebhookName, so the other configurations are written before.
func TestTheConfigurationWithTheProbeIsTheLast(t *testing.T) {
	t.Parallel()
	c := Chain{{Name: "attribute-rules"}, {Name: "attributes", Configuration: "own"}, {Name: "hold"}}
	require.Equal(t, []string{"own", v1alpha1.WebhookName}, c.configurations())
}

func TestAConfigurationHasTheWebhooksOfItsPlugins(t *testing.T) {
	t.Parallel()
	rules, attributes := validator("rules", admissionregistrationv1.Fail, nil),
		validator("attributes", admissionregistrationv1.Fail, nil)
	attributes.Configuration = "own"
	attributes.Webhooks = func(context.Context) ([]Webhook, error) {
		return []Webhook{{Rules: everything, Revision: "r1"}}, nil
	}
	c := Chain{rules, attributes, mutator("creator", nil)}
	for configuration, want := range map[string][]string{
		v1alpha1.WebhookName: {"rules.policy.nstpl.dev", "/validate"},
		"own":                {"attributes.policy.nstpl.dev", "/validate/attributes/r1"},
	} {
		webhooks, err := c.validating(t.Context(), configuration, Endpoint{URL: "https://localhost"}, nil)
		require.NoError(t, err)
		require.Len(t, webhooks, 1)
		require.Equal(t, want[0], webhooks[0].Name)
		require.Equal(t, "https://localhost"+want[1], *webhooks[0].ClientConfig.URL)

		inCluster, err := c.validating(t.Context(), configuration, Endpoint{}, nil)
		require.NoError(t, err)
		for _, w := range append(webhooks, inCluster...) {
			require.Equal(t, configuration == "own", HasRevision(w.ClientConfig, "attributes", "r1"))
			require.False(t, HasRevision(w.ClientConfig, "attributes", "r2"))
		}
	}
}

// A mutator may have the revision in its URL, too.
func TestAMutatingWebhookHasTheRevisionOfItsPlugin(t *testing.T) {
	t.Parallel()
	constraints, creator := mutator("scc", nil), mutator("creator", nil)
	constraints.Webhooks = func(context.Context) ([]Webhook, error) {
		return []Webhook{{Rules: everything, Revision: "r1"}}, nil
	}
	webhooks, err := Chain{constraints, creator}.mutating(t.Context(), Endpoint{URL: "https://localhost"}, nil)
	require.NoError(t, err)
	require.Equal(t, "https://localhost/mutate/scc/r1", *webhooks[0].ClientConfig.URL)
	require.Equal(t, "https://localhost/mutate", *webhooks[1].ClientConfig.URL)
	require.True(t, HasRevision(webhooks[0].ClientConfig, "scc", "r1"))
}

// An admission policy finds its parameter by the label, only while the plugin has a webhook.
func TestTheLabelOfAPluginIsThatOfItsWebhook(t *testing.T) {
	t.Parallel()
	isNeeded := false
	labeled := mutator("creator", nil)
	labeled.Label = "creator-is-recorded"
	labeled.Webhooks = func(context.Context) ([]Webhook, error) {
		if !isNeeded {
			return nil, nil
		}
		return []Webhook{{Rules: everything}}, nil
	}
	other := validator("other", admissionregistrationv1.Fail, nil)
	other.Label = "is-not-mutating"
	c := Chain{labeled, other}
	configuration := &admissionregistrationv1.MutatingWebhookConfiguration{}
	configuration.Labels = map[string]string{"is-not-mutating": "kept", "of-others": "kept"}
	for _, isNeeded = range []bool{true, false} {
		var err error
		configuration.Webhooks, err = c.mutating(t.Context(), Endpoint{URL: "https://localhost"}, nil)
		require.NoError(t, err)
		c.label(configuration)
		want := map[string]string{"is-not-mutating": "kept", "of-others": "kept"}
		if isNeeded {
			want["creator-is-recorded"] = "true"
		}
		require.Equal(t, want, configuration.Labels)
	}
}
