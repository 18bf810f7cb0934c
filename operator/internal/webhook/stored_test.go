package webhook

import (
	"context"
	"errors"
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
