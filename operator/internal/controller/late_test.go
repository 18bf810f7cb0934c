package controller

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/counters"
	"nstpl.dev/nstpl/operator/quota"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/test/controlplane"
)

// What an earlier leader decided changes nothing if the API server gets it after somebody else wrote what it was
// decided by. What others write besides does not matter.
func TestWritesThatComeLate(t *testing.T) {
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

	t.Run("allocations", func(t *testing.T) {
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
				require.True(t, isStale(err), "%d: %v", i, err)
				require.NoError(t, api.Get(t.Context(), client.ObjectKeyFromObject(ns), after))
				require.Equal(t, ns.Annotations, after.Annotations, i)
				continue
			}
			require.NoError(t, err, i)
			require.Subset(t, after.Annotations, c.given, i)
		}
	})

	t.Run("limits", func(t *testing.T) {
		pods, services := corev1.ResourceList{"pods": quota.Unlimited}, corev1.ResourceList{"services": quota.Unlimited}
		for i, c := range []struct {
			before    corev1.ResourceList
			meanwhile string
			late      bool
		}{
			{},
			{before: pods},
			{before: pods, meanwhile: `{"metadata": {"labels": {"a": "c"}}}`},
			{before: pods, meanwhile: `{"spec": {"hard": {"services": "1"}}}`, late: true},
			{before: pods, meanwhile: `{"metadata": {"labels": {"app.kubernetes.io/managed-by": "b"}}}`, late: true},
			{before: pods, meanwhile: annotations(v1alpha1.RecountAnnotation, counters.Now()), late: true},
		} {
			counter := &corev1.ResourceQuota{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "default", Name: fmt.Sprint("limits-", i), Labels: map[string]string{"a": "b"},
				},
				Spec: corev1.ResourceQuotaSpec{Hard: c.before},
			}
			require.NoError(t, api.Create(t.Context(), counter))
			seen := counter.DeepCopy()
			if c.meanwhile != "" {
				merge(t, counter, c.meanwhile)
			}
			err := api.Patch(t.Context(), counter, limitsPatch(seen, services))
			require.Equal(t, c.late, isStale(err), "%d: %v", i, err)
			if !c.late {
				require.NoError(t, err, i)
				require.Equal(t, services, counter.Spec.Hard, i)
				require.Equal(t, counters.ManagedBy, counter.Labels[counters.ManagedByLabel], i)
			}
		}
	})

	t.Run("what is invalid is not late", func(t *testing.T) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "invalid"}}
		require.NoError(t, api.Create(t.Context(), ns))
		err := api.Patch(t.Context(), ns,
			testedPatch{}.test("/metadata/uid", ns.UID).change("/metadata/labels/a", "no value of a label"))
		require.True(t, apierrors.IsInvalid(err), err)
		require.False(t, isStale(err), err)
	})

	t.Run("reports", func(t *testing.T) {
		for i, meanwhile := range []string{"", annotations("a", "b"), `{"metadata": {"labels": {"a": "b"}}}`} {
			ns := initializing(v1alpha1.TemplateInitializer)
			ns.Name, ns.UID, ns.ResourceVersion = fmt.Sprint("report-", i), "", ""
			require.NoError(t, api.Create(t.Context(), ns))
			seen := ns.DeepCopy()
			if meanwhile != "" {
				merge(t, ns, meanwhile)
			}
			body, err := Report{
				Status: corev1.ConditionTrue, Reason: "r", Depths: "a.tree.policy.nstpl.dev/depth=0",
			}.patch(seen, metav1.Now())
			require.NoError(t, err)
			err = api.Status().Patch(t.Context(), ns, client.RawPatch(types.StrategicMergePatchType, body))
			require.Equal(t, meanwhile != "", isStale(err), "%d: %v", i, err)
		}
	})
}
