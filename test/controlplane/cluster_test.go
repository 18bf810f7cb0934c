package controlplane_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"nstpl.dev/nstpl/test/controlplane"
)

func TestTwoClustersAtATime(t *testing.T) {
	one, other := startTwo(t)
	client := newClient(t, one)

	server, err := client.Discovery().ServerVersion()
	require.NoError(t, err)
	require.Equal(t, "v"+controlplane.Version(), server.GitVersion)

	requirePopulated(t, client, "here")
	_, err = newClient(t, other).CoreV1().Namespaces().Get(t.Context(), "here", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "the other cluster must not have the namespace, got %v", err)
}

// Stored objects exist after a program was killed and started again, and the cluster continues to work. Wait does not
// take that for an end.
func TestRestart(t *testing.T) {
	t.Parallel()
	cluster, err := controlplane.Start(t.Context(), controlplane.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cluster.Stop()) })
	client := newClient(t, cluster)
	requirePopulated(t, client, "before")
	waiting, stopWaiting := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cluster.Wait(waiting) }()
	for _, name := range []string{"kube-apiserver", "etcd", "kube-controller-manager"} {
		require.NoError(t, cluster.Restart(t.Context(), name), name)
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "before", metav1.GetOptions{})
		require.NoError(t, err, name)
		requirePopulated(t, client, "after-"+name)
	}
	stopWaiting()
	require.NoError(t, <-ended)
	require.ErrorContains(t, cluster.Restart(t.Context(), "kubelet"), "the cluster has no such program")
}

func startTwo(t *testing.T) (one, other *controlplane.Cluster) {
	t.Helper()
	type result struct {
		*controlplane.Cluster
		error
	}
	results := make(chan result)
	for range 2 {
		go func() {
			cluster, err := controlplane.Start(t.Context(), controlplane.Options{})
			results <- result{cluster, err}
		}()
	}
	var clusters []*controlplane.Cluster
	for range 2 {
		r := <-results
		if assert.NoError(t, r.error) {
			t.Cleanup(func() { require.NoError(t, r.Stop()) })
			clusters = append(clusters, r.Cluster)
		}
	}
	require.Len(t, clusters, 2)
	return clusters[0], clusters[1]
}

func newClient(t *testing.T, cluster *controlplane.Cluster) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	require.NoError(t, err)
	return client
}

// requirePopulated creates a namespace and waits for the objects that controllers create in each namespace.
func requirePopulated(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(t.Context(), "default", metav1.GetOptions{})
		assert.NoError(c, err)
		_, err = client.CoreV1().ConfigMaps(name).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
		assert.NoError(c, err)
	}, time.Minute, 50*time.Millisecond)
}
