package policyspace

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

// What is not counted yet is not known to be used, and after a while known not to be counted. What is counted stays as
// it is.
func TestUsed(t *testing.T) {
	t.Parallel()
	const pods, gpus = corev1.ResourcePods, corev1.ResourceName("nvidia.com/gpu")
	counted := corev1.ResourceList{pods: resource.MustParse("3")}
	all := corev1.ResourceList{pods: resource.MustParse("3"), gpus: {}}
	long := time.Now().Add(-2 * uncountableTime)
	limits := corev1.ResourceList{pods: quota.Unlimited, gpus: quota.Unlimited}
	for name, test := range map[string]struct {
		told    string
		created time.Time
		want    corev1.ResourceList
	}{
		"just told":            {time.Now().Format(time.RFC3339Nano), long, counted},
		"told long ago":        {long.Format(time.RFC3339Nano), long, all},
		"to be told, just now": {"", time.Now(), counted},
		"to be told, old":      {"", long, all},
		"told what is no time": {"soon", long, all},
	} {
		counter := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{
				CreationTimestamp: metav1.NewTime(test.created),
				Annotations:       map[string]string{v1alpha1.RecountAnnotation: test.told},
			},
			Spec:   corev1.ResourceQuotaSpec{Hard: limits},
			Status: corev1.ResourceQuotaStatus{Hard: limits, Used: counted},
		}
		counter.Labels = map[string]string{managedByLabel: managedBy}
		require.Equal(t, test.want, countedUsage(counter), name)
		require.Len(t, counter.Status.Used, 1, "it is of a cache, and not to be changed")
	}
}

// Of a ResourceQuota that somebody changed nothing is known.
func TestIntact(t *testing.T) {
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
		counter := made()
		test.change(counter)
		require.False(t, isIntact(counter), name)
		require.Empty(t, countedUsage(counter), name)
		require.Equal(t, test.replaced, mustBeReplaced(counter), name)
	}
	uncharged := made()
	delete(uncharged.Status.Hard, pods)
	require.Empty(t, countedUsage(uncharged), "the API server no longer writes down what is used of it")
}

// A resource that Kubernetes counts is never taken for unused because it is counted late.
func TestWhatIsCountedLateIsNotUnused(t *testing.T) {
	t.Parallel()
	for name, may := range map[corev1.ResourceName]bool{
		"pods": false, "requests.cpu": false, "hugepages-2Mi": false, "services.loadbalancers": false,
		"requests.nvidia.com/gpu": false,
		"nvidia.com/gpu":          true, "count/deployments": true, "count/widgets.example.com": true,
	} {
		require.Equal(t, may, mayBeUncountable(name), name)
	}
	limits := corev1.ResourceList{corev1.ResourcePods: quota.Unlimited}
	counter := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{managedByLabel: managedBy},
			Annotations: map[string]string{
				v1alpha1.RecountAnnotation: time.Now().Add(-time.Hour).Format(time.RFC3339Nano),
			},
		},
		Spec: corev1.ResourceQuotaSpec{Hard: limits}, Status: corev1.ResourceQuotaStatus{Hard: limits},
	}
	require.Empty(t, countedUsage(counter))
}
