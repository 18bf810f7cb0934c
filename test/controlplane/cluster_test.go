package controlplane_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"nstpl.dev/nstpl/test/controlplane"
)

// Two at a time, since that is how packages of tests run.
func TestClustersPopulateNewNamespaces(t *testing.T) {
	for _, name := range []string{"one", "other"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := controlplane.New(t)
			client, err := kubernetes.NewForConfig(cluster.RESTConfig())
			require.NoError(t, err)

			namespaces, err := client.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
			require.NoError(t, err)
			for _, ns := range namespaces.Items {
				require.NotContains(t, []string{"one", "other"}, ns.Name, "a cluster of its own")
			}
			createNamespace(t, client, name)

			server, err := client.Discovery().ServerVersion()
			require.NoError(t, err)
			require.Equal(t, "v"+controlplane.Version(), server.GitVersion)
		})
	}
}

func createNamespace(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	_, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{})
	require.NoError(t, err)
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(context.Background(), "default", metav1.GetOptions{})
		require.NoError(t, err)
		_, err = client.CoreV1().ConfigMaps(name).Get(context.Background(), "kube-root-ca.crt", metav1.GetOptions{})
		require.NoError(t, err)
	}, 10*time.Second, 50*time.Millisecond)
}
