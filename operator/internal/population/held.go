package population

import (
	"context"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
)

// retryHeldBefore is the time after which a failed list of namespaces is repeated.
const retryHeldBefore = time.Second

// heldNamespaces knows which namespaces have been held since their creation. The label alone does not say it: a user
// may have created a namespace with it while the API server did not call the webhooks, such as before the installation.
type heldNamespaces struct {
	live client.Reader
	// called is closed once the API server calls the webhooks.
	called <-chan struct{}
	// before has the namespaces with the label that may be older than that, by UID. It is nil until they are known.
	before atomic.Pointer[map[types.UID]bool]
}

// Start lists the namespaces that have the label when the API server calls the webhooks.
func (h *heldNamespaces) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-h.called:
	}
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	err := wait.PollUntilContextCancel(ctx, retryHeldBefore, true, func(ctx context.Context) (bool, error) {
		err := h.live.List(ctx, namespaces, client.HasLabels{v1alpha1.InitializingLabel})
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "can't list the namespaces that are being initialized")
		}
		return err == nil, nil
	})
	if err != nil {
		return nil //nolint:nilerr // the operator ends
	}
	before := map[types.UID]bool{}
	for i := range namespaces.Items {
		before[namespaces.Items[i].UID] = true
	}
	h.before.Store(&before)
	return nil
}

// contains reports whether users cannot have written into a namespace yet, other than those with the verb initialize.
func (h *heldNamespaces) contains(ns *corev1.Namespace) bool {
	before := h.before.Load()
	return initialize.Initializing(ns) && before != nil && !(*before)[ns.UID]
}
