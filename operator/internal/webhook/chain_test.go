package webhook

import (
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// The webhooks of a plugin that has got a configuration of its own stay in the other one until its own is up to date.
func TestWebhooksStayUntilTheirOwnConfigurationIsUpToDate(t *testing.T) {
	t.Parallel()
	nothing := validatorFunc(func(*Request) error { return nil })
	c := &Configurations{complete: map[string]bool{}, Chain: Chain{
		{Name: "attribute-rules", Validator: nothing},
		{Name: "attributes", Validator: nothing, Configuration: "own"},
		{Name: "hold", Validator: nothing},
	}}
	require.Equal(t, []string{"own", v1alpha1.WebhookName}, c.Chain.configurations())
	var stored []admissionregistrationv1.ValidatingWebhook
	for _, name := range []string{
		"attribute-rules", "attributes", "attributes-2", "attributes-other", "hold", "hold-2", "removed",
	} {
		stored = append(stored, admissionregistrationv1.ValidatingWebhook{Name: name + ".policy.nstpl.dev"})
	}
	kept := func(configuration string) (names []string) {
		for _, webhook := range c.incomplete(configuration, stored) {
			names = append(names, webhook.Name)
		}
		return names
	}
	require.Equal(t, []string{"attributes.policy.nstpl.dev", "attributes-2.policy.nstpl.dev"},
		kept(v1alpha1.WebhookName))
	c.complete["own"] = true
	require.Empty(t, kept(v1alpha1.WebhookName))
}
