package policyspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

// A resource that may be uncountable has no usage until uncountableTime has passed, and then a usage of 0.
func TestCountedUsage(t *testing.T) {
	t.Parallel()
	const pods, gpus = corev1.ResourcePods, corev1.ResourceName("nvidia.com/gpu")
	counted := corev1.ResourceList{pods: resource.MustParse("3")}
	all := corev1.ResourceList{pods: resource.MustParse("3"), gpus: {}}
	long := time.Now().Add(-2 * uncountableTime)
	limits := corev1.ResourceList{pods: quota.Unlimited, gpus: quota.Unlimited}
	for name, test := range map[string]struct {
		recounted string
		created   time.Time
		want      corev1.ResourceList
	}{
		"written just now":                {time.Now().Format(time.RFC3339Nano), long, counted},
		"written long ago":                {long.Format(time.RFC3339Nano), long, all},
		"created just now, not annotated": {"", time.Now(), counted},
		"created long ago, not annotated": {"", long, all},
		"annotated with an invalid time":  {"soon", long, all},
	} {
		usageQuota := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.NewTime(test.created),
				Annotations:       map[string]string{v1alpha1.RecountAnnotation: test.recounted},
			},
			Spec:   corev1.ResourceQuotaSpec{Hard: limits},
			Status: corev1.ResourceQuotaStatus{Hard: limits, Used: counted},
		}
		usageQuota.Labels = map[string]string{managedByLabel: managedBy}
		used := countedUsage(usageQuota)
		require.Equal(t, test.want, used, name)
		require.Len(t, assumed(used, usageQuota), len(test.want)-1, "gpus are assumed")
		require.Len(t, usageQuota.Status.Used, 1, "the usage quota may be of a cache")
	}
}

// A usage quota that a user changed counts nothing.
func TestIsIntact(t *testing.T) {
	t.Parallel()
	const pods = corev1.ResourcePods
	made := func() *corev1.ResourceQuota {
		limits := corev1.ResourceList{pods: quota.Unlimited, v1alpha1.RecountResource: {}}
		return &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      map[string]string{managedByLabel: managedBy},
				Annotations: map[string]string{v1alpha1.RecountAnnotation: time.Now().Format(time.RFC3339Nano)},
			},
			Spec: corev1.ResourceQuotaSpec{Hard: limits},
			Status: corev1.ResourceQuotaStatus{
				Hard: limits.DeepCopy(), Used: corev1.ResourceList{pods: resource.MustParse("3")},
			},
		}
	}
	require.True(t, isIntact(made()))
	require.Len(t, countedUsage(made()), 1)
	for name, test := range map[string]struct {
		change   func(*corev1.ResourceQuota)
		replaced bool
	}{
		"limit": {func(c *corev1.ResourceQuota) {
			c.Spec.Hard = corev1.ResourceList{pods: resource.MustParse("9")}
		}, false},
		"enforced limit": {func(c *corev1.ResourceQuota) { c.Status.Hard[pods] = resource.MustParse("9") }, false},
		"recount": {func(c *corev1.ResourceQuota) {
			c.Spec.Hard[v1alpha1.RecountResource] = resource.MustParse("9")
		}, false},
		"label":      {func(c *corev1.ResourceQuota) { c.Labels = nil }, false},
		"annotation": {func(c *corev1.ResourceQuota) { c.Annotations = nil }, false},
		"template":   {func(c *corev1.ResourceQuota) { c.Labels[v1alpha1.TemplateNameLabel] = "" }, true},
		"scopes": {func(c *corev1.ResourceQuota) {
			c.Spec.Scopes = []corev1.ResourceQuotaScope{"Terminating"}
		}, true},
		"selector": {func(c *corev1.ResourceQuota) { c.Spec.ScopeSelector = &corev1.ScopeSelector{} }, true},
	} {
		usageQuota := made()
		test.change(usageQuota)
		require.False(t, isIntact(usageQuota), name)
		require.Empty(t, countedUsage(usageQuota), name)
		require.Equal(t, test.replaced, mustBeReplaced(usageQuota), name)
	}
	uncharged := made()
	delete(uncharged.Status.Hard, pods)
	require.Empty(t, countedUsage(uncharged), "the API server no longer updates its usage")
}

// A resource that Kubernetes counts late is never treated as uncountable.
func TestMayBeUncountable(t *testing.T) {
	t.Parallel()
	for name, may := range map[corev1.ResourceName]bool{
		"pods": false, "requests.cpu": false, "hugepages-2Mi": false, "services.loadbalancers": false,
		"requests.nvidia.com/gpu": false,
		"nvidia.com/gpu":          true, "count/deployments": true, "count/widgets.example.com": true,
	} {
		require.Equal(t, may, mayBeUncountable(name), name)
	}
	space := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: resourceList("pods", "1", "requests.nvidia.com/gpu", "1",
		"nvidia.com/gpu", "1", "limits.example.com/x", "1", "count/deployments", "1",
		"gold.storageclass.storage.k8s.io/requests.storage", "1", "gpus.deviceclass.resource.k8s.io/devices", "1")}
	require.Equal(t, []string{
		"policyspace a limits limits.example.com/x, which Kubernetes does not count: limit requests.example.com/x instead",
		"policyspace a limits nvidia.com/gpu, which Kubernetes does not count: limit requests.nvidia.com/gpu instead",
	}, uncountedExtended(space))
	limits := corev1.ResourceList{corev1.ResourcePods: quota.Unlimited}
	usageQuota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{managedByLabel: managedBy},
			Annotations: map[string]string{
				v1alpha1.RecountAnnotation: time.Now().Add(-time.Hour).Format(time.RFC3339Nano),
			},
		},
		Spec: corev1.ResourceQuotaSpec{Hard: limits}, Status: corev1.ResourceQuotaStatus{Hard: limits},
	}
	require.Empty(t, countedUsage(usageQuota))
}

func TestUntilUncountable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const pods, gpus = corev1.ResourcePods, corev1.ResourceName("nvidia.com/gpu")
		for name, test := range map[string]struct {
			limited, counted corev1.ResourceName
			age, want        time.Duration
		}{
			"counted":           {gpus, gpus, 0, 0},
			"not counted":       {gpus, "", 0, uncountableTime + time.Millisecond},
			"not counted later": {gpus, "", time.Second, uncountableTime - time.Second + time.Millisecond},
			"uncountable":       {gpus, "", uncountableTime, 0},
			"countable":         {pods, "", 0, 0},
		} {
			used := corev1.ResourceList{}
			if test.counted != "" {
				used[test.counted] = resource.MustParse("3")
			}
			usageQuota := countingQuota(time.Now().Add(-test.age), corev1.ResourceList{test.limited: quota.Unlimited},
				used)
			require.Equal(t, test.want, untilUncountable(usageQuota), name)
		}
	})
}
