package integration_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// A request for a template may fail after admission has recorded its selector. The selector stays for as long as the
// request may take, and is removed then.
func TestSelectorsOfFailedRequestsExpire(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	addition := func(name string, age time.Duration) map[string]any {
		return map[string]any{
			"kind": "namespacetemplates", "name": name, "uid": "never-stored",
			"rules": []string{"g:" + name + " failed=" + name}, "time": metav1.NewTime(time.Now().Add(-age)),
		}
	}
	pending, err := json.Marshal([]any{addition("expired", time.Hour), addition("under-way", 0)})
	require.NoError(t, err)
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.SelectorsConfigMap,
	}}
	change, err := json.Marshal(map[string]any{"data": map[string]string{
		"pending": string(pending), "label.d": "\nfailed=expired g:expired failed=expired\n",
	}})
	require.NoError(t, err)
	require.NoError(t, s.client.Patch(t.Context(), record, mergePatch(string(change))))
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(record), record))
		assert.Equal(c, map[string]string{
			"label.y": "\nfailed=under-way g:under-way failed=under-way\n",
			"pending": record.Data["pending"],
		}, record.Data)
		assert.NotContains(c, record.Data["pending"], "expired")
	})
}

// The operator asks this before it answers a request for a template.
func TestPoliciesShowWhichSelectorsTheyKnow(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	record := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: v1alpha1.OperatorNamespace, Name: v1alpha1.SelectorsConfigMap,
	}}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(record), record))
	ask := func(version string) error {
		question := &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: record.Namespace, Name: record.Name},
			Data:       map[string]string{"resourceVersion": version},
		}
		return s.client.Update(t.Context(), question, client.DryRunAll)
	}
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, ask(record.ResourceVersion)) })
	err := ask(record.ResourceVersion + "000")
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.ErrorContains(t, err, "nstpl-selectors-known")
	require.ErrorContains(t, err, "the policies know resourceVersion ")
}
