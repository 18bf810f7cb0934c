package policyspace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

func TestNextLimits(t *testing.T) {
	t.Parallel()
	limits := func(names ...corev1.ResourceName) corev1.ResourceList {
		list := corev1.ResourceList{}
		for _, name := range names {
			list[name] = quota.Unlimited
		}
		return list
	}
	const pods, services, gpus = corev1.ResourcePods, corev1.ResourceServices, corev1.ResourceName("nvidia.com/gpu")
	for name, test := range map[string]struct {
		spec, status, used, want corev1.ResourceList
		// recounted and quiet are how long ago the usage quota was written, and since when no usage was charged.
		recounted, quiet time.Duration
		next             corev1.ResourceList
		wait             time.Duration
	}{
		"as wanted": {spec: limits(pods), used: limits(pods), want: limits(pods)},
		"as wanted, maybe uncountable": {
			spec: limits(gpus), want: limits(gpus), recounted: 2 * time.Second, wait: 3*time.Second + time.Millisecond,
		},
		"as wanted, uncountable": {spec: limits(gpus), want: limits(gpus), recounted: uncountableTime},
		"a resource is missing": {
			spec: limits(pods), want: limits(pods, services), next: withRecount(limits(pods, services)),
		},
		"a resource is not wanted": {
			spec: limits(pods, services), want: limits(pods), next: withRecount(limits(pods)),
		},
		"counted, and charged just now": {
			spec: withRecount(limits(pods)), want: limits(pods), quiet: secondCountDelay / 4,
			wait: secondCountDelay * 3 / 4,
		},
		"counted, and quiet": {
			spec: withRecount(limits(pods)), want: limits(pods), quiet: secondCountDelay, next: limits(pods),
		},
		"counted, and another resource is missing": {
			spec: withRecount(limits(pods)), want: limits(services), next: withRecount(limits(services)),
		},
		"written just now and not enforced": {
			spec: limits(pods), status: limits(services), want: limits(pods), recounted: statusHardDelay / 4,
			wait: statusHardDelay * 3 / 4,
		},
		"written long ago and not enforced": {
			spec: limits(pods), status: limits(services), want: limits(pods), recounted: statusHardDelay,
			next: withRecount(limits(pods)),
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				usageQuota := countingQuota(time.Now().Add(-test.recounted), test.spec, test.used)
				if test.status != nil {
					usageQuota.Status.Hard = test.status
				}
				next, wait := nextLimits(usageQuota, test.want, time.Now().Add(-test.quiet))
				require.Equal(t, test.next, next)
				require.Equal(t, test.wait, wait)
			})
		})
	}
}

// A second count is requested where the first one may miss objects.
func TestFirstLimits(t *testing.T) {
	t.Parallel()
	const pods, secrets = corev1.ResourcePods, corev1.ResourceSecrets
	initializing := map[string]string{v1alpha1.InitializingLabel: ""}
	for name, test := range map[string]struct {
		labels   map[string]string
		age      time.Duration
		resource corev1.ResourceName
		want     bool
	}{
		"initializing": {initializing, 0, pods, false},
		"initializing, with a resource that exists early": {initializing, 0, secrets, true},
		"initializing for long":                           {initializing, uncountableTime + time.Second, pods, true},
		"initialized":                                     {nil, 0, pods, true},
	} {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Labels: test.labels, CreationTimestamp: metav1.NewTime(time.Now().Add(-test.age)),
		}}
		limits := firstLimits(ns, corev1.ResourceList{test.resource: quota.Unlimited})
		_, isRecounted := limits[v1alpha1.RecountResource]
		require.Equal(t, test.want, isRecounted, name)
	}
}

func TestChangesResources(t *testing.T) {
	t.Parallel()
	made := func(change func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
		limits := corev1.ResourceList{corev1.ResourcePods: quota.Unlimited}
		usageQuota := countingQuota(time.Now(), limits, resourceList("pods", "3"))
		change(usageQuota)
		return usageQuota
	}
	for name, test := range map[string]struct {
		change func(*corev1.ResourceQuota)
		want   bool
	}{
		"nothing":          {func(*corev1.ResourceQuota) {}, false},
		"usage":            {func(q *corev1.ResourceQuota) { q.Status.Used = resourceList("pods", "4") }, false},
		"counted resource": {func(q *corev1.ResourceQuota) { q.Status.Used = nil }, true},
		"enforced":         {func(q *corev1.ResourceQuota) { q.Status.Hard = nil }, true},
		"limited":          {func(q *corev1.ResourceQuota) { q.Spec.Hard = nil }, true},
		"label":            {func(q *corev1.ResourceQuota) { q.Labels = nil }, true},
	} {
		require.Equal(t, test.want, changesResources(made(func(*corev1.ResourceQuota) {}), made(test.change)), name)
	}
}

// The second count waits until no usage has been charged for a while.
func TestQuietSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &UsageQuotas{chargedAt: map[string]time.Time{}}
		recounted := time.Now()
		before := countingQuota(recounted, withRecount(corev1.ResourceList{}), resourceList("pods", "3"))
		after := countingQuota(recounted, withRecount(corev1.ResourceList{}), resourceList("pods", "4"))
		before.Namespace, after.Namespace = "a", "a"
		time.Sleep(time.Second)
		r.rememberCharge(before, before)
		require.WithinDuration(t, recounted, r.quietSince(after), 0, "nothing was charged")
		r.rememberCharge(before, after)
		require.WithinDuration(t, time.Now(), r.quietSince(after), 0)
		r.forgetCharge("a")
		require.WithinDuration(t, recounted, r.quietSince(after), 0)
		after.Spec.Hard = nil
		r.rememberCharge(before, after)
		require.Empty(t, r.chargedAt, "no second count is to come")
	})
}
