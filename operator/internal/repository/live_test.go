package repository

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"nstpl.dev/nstpl/operator/engine/render"
)

// No event tells of an object that was created and deleted while a watch was interrupted.
func TestAnObjectThatNoEventAnnouncedIsGone(t *testing.T) {
	t.Parallel()
	cluster, admin := newCluster(t)
	createRepository(t, admin, "gap")
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "gap"}}
	require.NoError(t, admin.Client.Create(t.Context(), role))
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(role)
	require.NoError(t, err)
	written := &unstructured.Unstructured{Object: fields}
	written.SetGroupVersionKind(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
	admin.Cluster.wrote(written)
	require.NoError(t, admin.Client.Delete(t.Context(), role))
	informers, err := cache.New(cluster.RESTConfig(), cache.Options{Scheme: testScheme(t)})
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- informers.Start(ctx) }()
	defer func() {
		stop()
		require.NoError(t, <-ended)
	}()
	require.True(t, informers.WaitForCacheSync(ctx))
	admin.Cluster.Cached, admin.Cluster.Informers = informers, informers
	id := render.IDOf(written)
	all, err := admin.Cluster.live(t.Context())
	require.NoError(t, err)
	require.Nil(t, all[id], "the cache is complete up to the deletion")

	later := written.DeepCopy()
	later.SetResourceVersion("999999999999")
	admin.Cluster.wrote(later)
	all, err = admin.Cluster.live(t.Context())
	require.NoError(t, err)
	require.NotNil(t, all[id], "the cache does not have the write yet")
}
