package quota_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

func TestRequestedReturnsTheResourceThatUsesALimit(t *testing.T) {
	t.Parallel()
	for name, want := range map[corev1.ResourceName]string{
		"pods": "pods", "cpu": "pods", "limits.memory": "pods", "requests.nvidia.com/gpu": "pods",
		"hugepages-2Mi": "pods", "count/pods": "pods",
		"services.nodeports": "services", "requests.storage": "persistentvolumeclaims",
		"gold.storageclass.storage.k8s.io/requests.storage": "persistentvolumeclaims", "count/jobs.batch": "jobs.batch",
		"gpu.deviceclass.resource.k8s.io/devices": "resourceclaims.resource.k8s.io", "secrets": "secrets",
	} {
		require.Equal(t, want, quota.Requested(name).String(), name)
	}
}

func TestOneReturnsTheChangeOfASingleObject(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		old, after, want corev1.ResourceList
	}{
		"several pods":                     {list("pods", "2"), list("pods", "5"), list("pods", "3")},
		"the first of several":             {nil, list("pods", "2"), list("pods", "1")},
		"a single pod":                     {list("pods", "2"), list("pods", "3"), nil},
		"fewer pods":                       {list("pods", "3"), list("pods", "1"), nil},
		"amounts are not objects":          {nil, list("cpu", "5", "requests.storage", "9Gi"), nil},
		"several objects with amounts":     {nil, list("pods", "2", "cpu", "5"), list("pods", "1")},
		"several objects of another group": {nil, list("count/jobs.batch", "4"), list("count/jobs.batch", "1")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, several := quota.Change{Namespace: "a", Old: test.old, New: test.after, Since: "7"}.One()
			require.Equal(t, test.want != nil, several)
			require.Equal(t, quota.Change{Namespace: "a", Old: test.old, New: one.New, Since: "7"}, one)
			require.Equal(t, len(test.want), len(one.New))
			for resource, amount := range test.want {
				require.Zero(t, amount.Cmp(one.New[resource]), resource)
			}
		})
	}
}

func TestASingleObjectMayFitWhereSeveralDoNot(t *testing.T) {
	t.Parallel()
	pods := schema.GroupResource{Resource: "pods"}
	room, full := space(list("pods", "5"), list("pods", "3")), space(list("pods", "3"), list("pods", "3"))
	several := quota.Change{Namespace: "a", Old: list("pods", "2"), New: list("pods", "5")}
	one, _ := several.One()
	require.ErrorContains(t, quota.Check(room, several), "requested: pods=6, limit: pods=5")
	require.NoError(t, quota.Check(room, one))
	require.NoError(t, quota.Check(room, quota.OneMore(pods)))
	require.ErrorContains(t, quota.Check(full, several), "requested: pods=6, limit: pods=3")
	require.ErrorContains(t, quota.Check(full, one), "requested: pods=4, limit: pods=3")
	require.ErrorContains(t, quota.Check(full, quota.OneMore(pods)), "requested: pods=4, limit: pods=3")
}

func TestHasRoomOnlyIfTheNumberOfObjectsIsAllThatIsLimited(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		space    *v1alpha1.PolicySpace
		resource string
		objects  int64
		want     bool
	}{
		"as many as the limit allows":   {space(list("pods", "5"), list("pods", "3")), "pods", 2, true},
		"one more than that":            {space(list("pods", "5"), list("pods", "3")), "pods", 3, false},
		"a resource without a limit":    {space(list("pods", "5"), nil), "services", 1000, true},
		"amounts are limited too":       {space(list("pods", "5", "cpu", "5"), nil), "pods", 1, false},
		"node ports are limited too":    {space(list("services.nodeports", "5"), nil), "services", 1, false},
		"both limits on the number fit": {space(list("pods", "5", "count/pods", "4"), nil), "pods", 4, true},
		"one limit on the number does not fit": {
			space(list("pods", "5", "count/pods", "4"), nil), "pods", 5, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			require.Equal(t, test.want,
				quota.HasRoom(test.space, schema.GroupResource{Resource: test.resource}, test.objects))
		})
	}
}

func TestResourcesThatMayPrecedeCountingExistBeforeTheyAreCounted(t *testing.T) {
	t.Parallel()
	for name, want := range map[corev1.ResourceName]bool{
		"configmaps": true, "secrets": true, "resourcequotas": true, "services": true, "count/secrets": true,
		"count/roles.rbac.authorization.k8s.io": true, "pods": false, "cpu": false, "count/pods": false,
		"count/deployments.apps": false, "count/jobs.batch": false, "services.nodeports": false,
	} {
		require.Equal(t, want, quota.MayPrecedeCounting(name), name)
	}
}
