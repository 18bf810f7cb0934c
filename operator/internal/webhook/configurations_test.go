package webhook

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/leadership"
)

// writtenWebhooks is a client that reads a MutatingWebhookConfiguration, and keeps the bundles of the webhooks that are
// written.
type writtenWebhooks struct {
	client.Client
	mutating []admissionregistrationv1.MutatingWebhook
	bundles  map[string]string
	err      error
}

func (w writtenWebhooks) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	into.(*admissionregistrationv1.MutatingWebhookConfiguration).Webhooks = w.mutating
	return nil
}

func (w writtenWebhooks) Update(_ context.Context, written client.Object, _ ...client.UpdateOption) error {
	switch written := written.(type) {
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		for _, each := range written.Webhooks {
			w.bundles[each.Name] = string(each.ClientConfig.CABundle)
		}
	case *admissionregistrationv1.ValidatingWebhookConfiguration:
		for _, each := range written.Webhooks {
			w.bundles[each.Name] = string(each.ClientConfig.CABundle)
		}
	}
	return w.err
}

// The API server can call the first webhook of a configuration before the program that writes the bundles has seen it.
func TestNewWebhooksHaveTheBundleOfAnotherProgram(t *testing.T) {
	t.Parallel()
	with := func(bundle string) admissionregistrationv1.WebhookClientConfig {
		return admissionregistrationv1.WebhookClientConfig{CABundle: []byte(bundle)}
	}
	const always, validating, mutating = "always.policy.nstpl.dev", "own.policy.nstpl.dev", "scc.policy.nstpl.dev"
	for name, test := range map[string]struct {
		stored *admissionregistrationv1.WebhookClientConfig
		want   string
	}{
		"new webhooks":            {nil, "authority"},
		"stored without a bundle": {new(with("")), "authority"},
		"stored with a bundle":    {new(with("renewed")), "renewed"},
	} {
		own, first := storedWebhooks{}, validator("always", admissionregistrationv1.Fail, nil)
		written := writtenWebhooks{bundles: map[string]string{}}
		if test.stored != nil {
			own.webhooks = []admissionregistrationv1.ValidatingWebhook{{Name: validating, ClientConfig: *test.stored}}
			written.mutating = []admissionregistrationv1.MutatingWebhook{{Name: mutating, ClientConfig: *test.stored}}
		}
		second := validator("own", admissionregistrationv1.Fail, nil)
		second.Configuration = "own"
		c := &Configurations{
			Leader: &leadership.Leader{Client: written}, Called: make(chan struct{}), next: map[string]time.Time{},
			Chain: Chain{first, second, mutator("scc", nil)}, Endpoint: Endpoint{URL: "https://localhost"},
			Stored: &Stored{caches: map[string]cache.Cache{"own": own, v1alpha1.WebhookName: storedWebhooks{
				webhooks: []admissionregistrationv1.ValidatingWebhook{{Name: always, ClientConfig: with("authority")}},
			}}},
		}
		close(c.Called)
		_, err := c.Reconcile(t.Context(), reconcile.Request{})
		require.NoError(t, err)
		require.Equal(t, map[string]string{
			always: "authority", validating: test.want, mutating: test.want, probeName: "authority",
		}, written.bundles, name)
	}
}

// The API server may refuse the webhooks of the operator. What waits for them says so.
func TestFailedWritesOfConfigurationsAreKnown(t *testing.T) {
	t.Parallel()
	refusing := &writtenWebhooks{bundles: map[string]string{}, err: errors.New("refused")}
	c := &Configurations{
		Leader: &leadership.Leader{Client: refusing}, Called: make(chan struct{}), next: map[string]time.Time{},
		Chain:    Chain{validator("quota", admissionregistrationv1.Fail, nil), mutator("scc", nil)},
		Endpoint: Endpoint{URL: "https://localhost", Bundle: func() []byte { return []byte("authority") }},
		Stored:   &Stored{caches: map[string]cache.Cache{v1alpha1.WebhookName: storedWebhooks{}}},
	}
	close(c.Called)
	_, err := c.Reconcile(t.Context(), reconcile.Request{})
	require.ErrorContains(t, err, "refused")
	require.ErrorContains(t, c.Stored.MutatingFailure(), "refused")
	_, err = c.Stored.State(t.Context(), v1alpha1.WebhookName, "quota")
	require.ErrorContains(t, err, "refused")
	refusing.err = nil
	_, err = c.Reconcile(t.Context(), reconcile.Request{})
	require.NoError(t, err)
	require.NoError(t, c.Stored.MutatingFailure())
}
