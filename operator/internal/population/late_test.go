package population

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/test/controlplane"
)

// A report that an earlier leader decided on changes nothing if the API server gets it after the namespace was changed.
func TestLateReportsAreRefused(t *testing.T) {
	t.Parallel()
	cluster := controlplane.New(t)
	api, err := client.New(cluster.RESTConfig(), client.Options{})
	require.NoError(t, err)
	merge := func(t *testing.T, object client.Object, patch string) {
		t.Helper()
		require.NoError(t, api.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	annotations := func(key, value string) string {
		return fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, key, value)
	}
	for i, meanwhile := range []string{"", annotations("a", "b"), `{"metadata": {"labels": {"a": "b"}}}`} {
		ns := initializing(v1alpha1.TemplateInitializer)
		ns.Name, ns.UID, ns.ResourceVersion = fmt.Sprint("report-", i), "", ""
		require.NoError(t, api.Create(t.Context(), ns))
		seen := ns.DeepCopy()
		if meanwhile != "" {
			merge(t, ns, meanwhile)
		}
		body, err := Report{
			Status: corev1.ConditionTrue, Reason: "r", Depths: map[string]string{"a.tree.policy.nstpl.dev/depth": "0"},
		}.patch(seen, metav1.Now())
		require.NoError(t, err)
		err = api.Status().Patch(t.Context(), ns, client.RawPatch(types.StrategicMergePatchType, body))
		require.Equal(t, meanwhile != "", patch.IsStale(err), "%d: %v", i, err)
	}
}
