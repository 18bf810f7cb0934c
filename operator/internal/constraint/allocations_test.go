package constraint

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
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/test/controlplane"
)

// An allocation that an earlier leader decided on changes nothing if the API server gets it after another write to the
// annotations that it depends on.
func TestLateAllocationsAreRefused(t *testing.T) {
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
	given := map[string]string{
		v1alpha1.UIDRangeAnnotation: "2000/10", v1alpha1.SupplementalGroupsAnnotation: "2000/10",
		v1alpha1.MCSAnnotation: "s0:c2,c0",
	}
	level := map[string]string{v1alpha1.MCSAnnotation: "s0:c2,c0"}
	ids := map[string]string{v1alpha1.UIDRangeAnnotation: "1000/10"}
	for i, c := range []struct {
		before, given map[string]string
		meanwhile     string
		late          bool
	}{
		{given: given},
		// it can't be told which annotations are there
		{given: given, meanwhile: annotations("a", "b"), late: true},
		{given: given, meanwhile: annotations(v1alpha1.UIDRangeAnnotation, "1000/10"), late: true},
		{given: given, before: map[string]string{"a": "b"}},
		{given: given, before: map[string]string{"a": "b"}, meanwhile: annotations("a", "c")},
		{
			given: given, before: map[string]string{"a": "b"},
			meanwhile: annotations(v1alpha1.UIDRangeAnnotation, "1000/10"), late: true,
		},
		{
			given: given, before: map[string]string{"a": "b"},
			meanwhile: annotations(v1alpha1.MCSAnnotation, "s0:c1,c0"), late: true,
		},
		{given: given, before: ids},
		{given: given, before: ids, meanwhile: annotations(v1alpha1.UIDRangeAnnotation, "3000/10"), late: true},
		{given: level, before: ids},
		{given: level, before: ids, meanwhile: annotations(v1alpha1.UIDRangeAnnotation, "3000/10"), late: true},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("allocation-", i), Annotations: c.before,
		}}
		require.NoError(t, api.Create(t.Context(), ns))
		seen := ns.DeepCopy()
		if c.meanwhile != "" {
			merge(t, ns, c.meanwhile)
		}
		after := ns.DeepCopy()
		err := api.Status().Patch(t.Context(), after, allocationPatch(seen, scc.Allocation{Annotations: c.given}))
		if c.late {
			require.True(t, patch.IsStale(err), "%d: %v", i, err)
			require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(ns), after))
			require.Equal(t, ns.Annotations, after.Annotations, i)
			continue
		}
		require.NoError(t, err, i)
		require.Subset(t, after.Annotations, c.given, i)
	}
}
