package bindings

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/kubernetes"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/attributes"
	"nstpl.dev/nstpl/test/controlplane"
)

// heldLists delays the requests for RoleBindings until release is closed. It sends to arrived when one begins.
type heldLists struct {
	http.RoundTripper
	arrived chan struct{}
	release chan struct{}
}

func (h heldLists) RoundTrip(r *http.Request) (*http.Response, error) {
	if strings.HasSuffix(r.URL.Path, "/rolebindings") {
		h.arrived <- struct{}{}
		select {
		case <-h.release:
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
	return h.RoundTripper.RoundTrip(r)
}

// When the last rule is deleted while the bindings are being read, a caller that waits for them must not wait for a
// watch that has ended.
func TestIndexDoesNotWaitForAStoppedWatch(t *testing.T) {
	t.Parallel()
	config := controlplane.New(t).RESTConfig()
	held := heldLists{arrived: make(chan struct{}, 100), release: make(chan struct{})}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		held.RoundTripper = next
		return held
	})
	clients, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	watch := NewWatch(t.Context(), clients.RbacV1().RESTClient())
	failed := make(chan error)
	go func() {
		_, err := watch.Index(t.Context())
		failed <- err
	}()
	<-held.arrived
	watch.Stop()
	require.ErrorIs(t, <-failed, errStopped)

	close(held.release)
	index, err := watch.Index(t.Context())
	require.NoError(t, err)
	who := attributes.Requester{Name: "system:admin", Groups: []string{"system:masters"}}
	require.True(t, index.Holds(who, v1alpha1.RoleReference{Kind: v1alpha1.ClusterRoleKind, Name: "cluster-admin"}, ""))
}
