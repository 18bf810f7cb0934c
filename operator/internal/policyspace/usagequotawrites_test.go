package policyspace

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/internal/leadership"
	"nstpl.dev/nstpl/operator/internal/patch"
	"nstpl.dev/nstpl/operator/quota"
	"nstpl.dev/nstpl/test/controlplane"
)

// The API server refuses limits of an earlier leader that arrive after the limits, the managed-by label or the recount
// annotation changed.
func TestLateLimitsAreRefused(t *testing.T) {
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
		{before: pods, meanwhile: annotations(v1alpha1.RecountAnnotation, recountTimestamp()), late: true},
	} {
		usageQuota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: "default", Name: fmt.Sprint("limits-", i), Labels: map[string]string{"a": "b"},
			},
			Spec: corev1.ResourceQuotaSpec{Hard: c.before},
		}
		require.NoError(t, api.Create(t.Context(), usageQuota))
		seen := usageQuota.DeepCopy()
		if c.meanwhile != "" {
			merge(t, usageQuota, c.meanwhile)
		}
		err := api.Patch(t.Context(), usageQuota, limitsPatch(seen, services))
		require.Equal(t, c.late, patch.IsStale(err), "%d: %v", i, err)
		if !c.late {
			require.NoError(t, err, i)
			require.Equal(t, services, usageQuota.Spec.Hard, i)
			require.Equal(t, managedBy, usageQuota.Labels[managedByLabel], i)
		}
	}
}

// deletions is a client that records the names of deleted objects.
type deletions struct {
	client.Client
	names []string
}

func (d *deletions) Delete(_ context.Context, object client.Object, _ ...client.DeleteOption) error {
	d.names = append(d.names, object.GetName())
	return nil
}

// A ResourceQuota of a user that has the name of a usage quota is not deleted where no usage is counted.
func TestUsageQuotasOfOthersAreNotDeleted(t *testing.T) {
	t.Parallel()
	api := &deletions{}
	r := &UsageQuotas{Leader: &leadership.Leader{Client: api}}
	for name, labels := range map[string]map[string]string{
		"unlabeled": nil, "of-helm": {managedByLabel: "Helm"}, "own": {managedByLabel: managedBy},
	} {
		require.NoError(t, r.remove(t.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		}))
	}
	require.Equal(t, []string{"own"}, api.names)
}
