package sync_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/operator"
)

// lateBody is the body of a watch. Its events wait while the lock is held.
type lateBody struct {
	io.ReadCloser
	lock *sync.RWMutex
}

func (b lateBody) Read(buffer []byte) (int, error) {
	n, err := b.ReadCloser.Read(buffer)
	b.lock.RLock()
	defer b.lock.RUnlock()
	return n, err
}

// behindLateWatches returns the options of another nstpl-sync whose watches of PolicyRepositories are late while the
// lock is held.
func behindLateWatches(t *testing.T, lock *sync.RWMutex) operator.Options {
	t.Helper()
	upstream, err := url.Parse(cluster.RESTConfig().Host)
	require.NoError(t, err)
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(cluster.RESTConfig()))
	require.NoError(t, err)
	server := httptest.NewTLSServer(&httputil.ReverseProxy{
		Transport: transport,
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(upstream) },
		ModifyResponse: func(r *http.Response) error {
			isWatch := r.Request.URL.Query().Get("watch") == "true"
			if isWatch && strings.HasSuffix(r.Request.URL.Path, "/policyrepositories") {
				r.Body = lateBody{r.Body, lock}
			}
			return nil
		},
	})
	t.Cleanup(server.Close)
	options := cluster.syncOptionsOf(t)
	options.Flags[0] = "--leader-elect"
	options.Kubeconfig = filepath.Join(t.TempDir(), "late.kubeconfig")
	err = operator.WriteKubeconfigOf(t.Context(), cluster.Cluster, "nstpl-sync", options.Kubeconfig, server)
	require.NoError(t, err)
	return options
}

// leaseOfAnother creates a lease by which another replica leads.
func leaseOfAnother(t *testing.T) *coordinationv1.Lease {
	t.Helper()
	another, now, day := "another", metav1.NewMicroTime(time.Now()), int32(24*60*60)
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: v1alpha1.OperatorNamespace, Name: "nstpl-sync"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &another, LeaseDurationSeconds: &day, AcquireTime: &now, RenewTime: &now,
		},
	}
	require.NoError(t, cluster.client.Create(t.Context(), lease))
	t.Cleanup(func() {
		require.NoError(t, client.IgnoreNotFound(cluster.client.Delete(context.WithoutCancel(t.Context()), lease)))
	})
	return lease
}

// A new leader knows what was suspended before it led, although its watch is late. The test is not parallel, because it
// stops the nstpl-sync of all tests.
func TestANewLeaderKnowsWhatIsSuspended(t *testing.T) {
	x := newTree(t, "late")
	a := x.commit(map[string]string{"role.yaml": roleFile("late-role", "get")})
	x.follow()
	x.waitApplied(a)
	require.NoError(t, cluster.sync.Kill())
	t.Cleanup(func() { startSync(t, cluster.syncOptions) })
	lease := leaseOfAnother(t)
	var isLate sync.RWMutex
	replica, err := operator.StartSync(behindLateWatches(t, &isLate))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, replica.Stop()) })
	require.NoError(t, replica.AwaitReady(t.Context()))
	x.waitMetric(replica, 1, "nstpl_sync_ready")

	isLate.Lock()
	t.Cleanup(isLate.Unlock)
	x.suspend(true)
	x.commit(map[string]string{"OWNERS": ""})
	require.NoError(t, cluster.client.Delete(t.Context(), lease))
	x.waitReason("Suspended", a) // the new leader has reconciled it
	x.mustExist(role("late-role"))
}
