package webhook

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noWebhooks is a cache whose answer is an error.
type noWebhooks struct {
	cache.Cache
	err error
}

func (s noWebhooks) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return s.err
}

func TestStateOfAPlugin(t *testing.T) {
	t.Parallel()
	webhooks := func(names ...string) storedWebhooks {
		var stored storedWebhooks
		for _, name := range names {
			stored.webhooks = append(stored.webhooks, admissionregistrationv1.ValidatingWebhook{Name: name})
		}
		return stored
	}
	for name, test := range map[string]struct {
		stored cache.Cache
		want   State
	}{
		"configured":       {webhooks("hold.policy.nstpl.dev", "quota.policy.nstpl.dev"), Configured},
		"other webhooks":   {webhooks("namespace-quota.policy.nstpl.dev", "quota.example.com"), Missing},
		"no webhooks":      {webhooks(), Missing},
		"no configuration": {noWebhooks{err: apierrors.NewNotFound(schema.GroupResource{}, "own")}, Deleted},
	} {
		state, err := (&Stored{caches: map[string]cache.Cache{"own": test.stored}}).State(t.Context(), "own", "quota")
		require.NoError(t, err, name)
		require.Equal(t, test.want, state, name)
	}
	unread := &Stored{caches: map[string]cache.Cache{"own": noWebhooks{err: errors.New("timeout")}}}
	_, err := unread.State(t.Context(), "own", "quota")
	require.EqualError(t, err, "read ValidatingWebhookConfiguration own: timeout")
}

// A webhook may be missing for ever, such as after the API server refused those of the operator.
func TestAsksReportsWhyAWebhookIsMissing(t *testing.T) {
	t.Parallel()
	stored := &Stored{caches: map[string]cache.Cache{"own": storedWebhooks{}, "other": storedWebhooks{}}}
	ask := func(configuration string) error {
		state, err := stored.Asks(t.Context(), configuration, "quota", nil)
		require.Equal(t, Missing, state)
		_, stateErr := stored.State(t.Context(), configuration, "quota")
		require.Equal(t, err, stateErr)
		return err
	}
	require.NoError(t, ask("own"))
	stored.tried("own", errors.New("refused"))
	require.EqualError(t, ask("own"), "refused")
	require.NoError(t, ask("other"))
	stored.tried("own", apierrors.NewConflict(schema.GroupResource{}, "own", nil))
	require.NoError(t, ask("own"), "it is written again at once")
	stored.tried("own", errors.New("refused"))
	stored.tried("own", nil)
	require.NoError(t, ask("own"))
}

// Rules that are stored prove nothing: the API server goes on with earlier ones until it has compiled the new ones.
func TestAsksWaitsUntilTheAPIServerUsesTheConfiguration(t *testing.T) {
	t.Parallel()
	webhooks := []admissionregistrationv1.ValidatingWebhook{{Name: FullName("quota"), TimeoutSeconds: new(int32(8))}}
	written, err := newProbe(webhooks)
	require.NoError(t, err)
	probed := append(slices.Clone(webhooks), written.webhook(Endpoint{URL: "https://localhost"}, nil))
	stored := &Stored{inUse: map[string]string{"other": "1"}}
	for _, test := range []struct {
		name    string
		stored  cache.Cache
		timeout int32
		answer  error
		want    State
		err     string
	}{
		{"another need", storedWebhooks{webhooks: probed, version: "1"}, 9, nil, Missing, ""},
		{"not used yet", storedWebhooks{webhooks: probed, version: "1"}, 8, nil, Missing, ""},
		{
			"no answer", storedWebhooks{webhooks: probed, version: "1"}, 8, errors.New("timeout"), Missing,
			"probe whether the API server calls the webhooks: timeout",
		},
		{
			"used", storedWebhooks{webhooks: probed, version: "1"}, 8,
			errors.New(`admission webhook "probe.policy.nstpl.dev" denied the request`), Configured, "",
		},
		{"found in use before", storedWebhooks{webhooks: probed, version: "1"}, 8, nil, Configured, ""},
		{"written again", storedWebhooks{webhooks: probed, version: "2"}, 8, nil, Missing, ""},
		{"an earlier operator", storedWebhooks{webhooks: webhooks, version: "3"}, 8, nil, Configured, ""},
		{
			"no configuration", noWebhooks{err: apierrors.NewNotFound(schema.GroupResource{}, "own")}, 8, nil,
			Deleted, "",
		},
	} {
		stored.caches, stored.leases = map[string]cache.Cache{"own": test.stored}, refusedLeases{err: test.answer}
		state, err := stored.Asks(t.Context(), "own", "quota", func(w *admissionregistrationv1.ValidatingWebhook) bool {
			return *w.TimeoutSeconds == test.timeout
		})
		require.Equal(t, test.want, state, test.name)
		if test.err != "" {
			require.EqualError(t, err, test.err, test.name)
		} else {
			require.NoError(t, err, test.name)
		}
	}
}
