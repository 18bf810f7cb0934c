package constraint

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// oneInformer is a cache with an informer that never runs. It knows whether the informer exists.
type oneInformer struct {
	cache.Cache
	informer toolscache.SharedIndexInformer
}

func (c *oneInformer) GetInformer(
	_ context.Context, object client.Object, _ ...cache.InformerGetOption,
) (cache.Informer, error) {
	if c.informer == nil {
		c.informer = toolscache.NewSharedIndexInformer(&toolscache.ListWatch{}, object, 0, nil)
	}
	return c.informer, nil
}

func (c *oneInformer) RemoveInformer(context.Context, client.Object) error {
	c.informer = nil
	return nil
}

// The watch ends with the last controller that needs it, since a cluster may have tens of thousands of ServiceAccounts.
func TestTheWatchOfServiceAccountsExistsWhileItIsNeeded(t *testing.T) {
	t.Parallel()
	informers := &oneInformer{}
	w := newAccountWatch(informers)
	first, second := &toolscache.ResourceEventHandlerFuncs{}, &toolscache.ResourceEventHandlerFuncs{}
	need := func(handler toolscache.ResourceEventHandler, needed bool) (exists bool) {
		require.NoError(t, w.need(t.Context(), handler, needed))
		return informers.informer != nil
	}
	require.True(t, need(first, true))
	require.True(t, need(second, true))
	require.True(t, need(first, false), "the other one needs it")
	require.False(t, need(second, false))
	require.True(t, need(first, true))
}
