package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// When the API server answers again, the operator handles everything that failed or happened during the outage at once,
// not after the backoff that has accumulated.
func TestFailuresAreRetriedWhenTheAPIServerReturns(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowClusterWithoutOperator(t)
	through := newProxy(t, cluster, "cut-off")
	require.NoError(t, cluster.startOperator(t.Context(), through.kubeconfig))
	s := newScope(t, cluster)
	s.createTemplate("defaults", configMap("a", "v"))
	s.createPopulatedNamespace("before")

	through.disconnect()
	var all []*corev1.Namespace
	for i := range 5 {
		all = append(all, s.createNamespace(fmt.Sprint("failing-", i)))
	}
	for _, ns := range all {
		s.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, through.writesAfter(ns.Name, time.Time{})) })
	}
	list := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: v1alpha1.AutoOptOutConfigMap, Namespace: v1alpha1.OperatorNamespace,
	}}
	changed := time.Now()
	require.NoError(t, s.client.Patch(t.Context(), list, mergePatch(`{"data": {"users": "robot"}}`)))
	const listPath = "/configmaps/" + v1alpha1.AutoOptOutConfigMap // which is read before the selectors are written
	s.eventually(func(c *assert.CollectT) { assert.NotEmpty(c, through.readsAfter(listPath, changed)) })
	through.server.CloseClientConnections()
	for i := range 5 {
		all = append(all, s.createNamespace(fmt.Sprint("unseen-", i)))
	}
	// A failed namespace is retried after 0.2, 0.4, ... 6.4, 12.8 seconds.
	const pause = 6700 * time.Millisecond
	s.eventually(func(c *assert.CollectT) { assert.Empty(c, through.writesAfter("", time.Now().Add(-pause))) })
	require.Empty(t, through.watchesAfter(time.Now().Add(-pause)), "watches must wait before they are retried")

	mended := time.Now()
	through.reconnect()
	s.eventually(func(c *assert.CollectT) { assert.NotZero(c, through.lastReadyAnswer()) })
	ready := through.lastReadyAnswer()
	for _, ns := range all {
		s.waitPopulated(ns)
		written := through.writesAfter(ns.Name, mended)
		require.NotEmpty(t, written)
		require.Less(t, written[0].at.Sub(ready), 4*time.Second, ns.Name)
	}
}
