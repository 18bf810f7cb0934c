package patch

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/test/controlplane"
)

// The API server answers an invalid object and a stale patch with the same status, 422.
func TestInvalidObjectsAreNotStale(t *testing.T) {
	t.Parallel()
	cluster := controlplane.New(t)
	api, err := client.New(cluster.RESTConfig(), client.Options{})
	require.NoError(t, err)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "invalid"}}
	require.NoError(t, api.Create(t.Context(), ns))
	err = api.Patch(t.Context(), ns,
		Tested{}.Test("/metadata/uid", ns.UID).Set("/metadata/labels/a", "not a label value"))
	require.True(t, apierrors.IsInvalid(err), err)
	require.False(t, IsStale(err), err)
}
