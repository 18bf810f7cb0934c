package integration_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/test/marks"
)

// The example of the source document works, from the tree to the error for the fourth pod.
func TestPolicySpaceQuotaLimitsTheSampleTree(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	result, err := hierarchy.Load(os.DirFS("../../manifests/samples/foo-corp"), "foo-corp")
	require.NoError(t, err)
	require.Empty(t, result.Violations)
	objects, err := result.Tree.Compile(v1alpha1.AuthoritativeDelete)
	require.NoError(t, err)
	for _, object := range objects {
		require.NoError(t, s.client.Create(t.Context(), object))
	}
	flat, err := result.Tree.FlatObjects()
	require.NoError(t, err)
	for _, object := range flat {
		s.eventuallyWithin(time.Minute, func(c *assert.CollectT) { // until the permission to bind is aggregated
			found := &unstructured.Unstructured{}
			found.SetGroupVersionKind(object.GroupVersionKind())
			if assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(object), found)) {
				assert.Empty(c, differences(object.Object, found.Object))
			}
		})
	}
	for i, ns := range []string{"shipping-dev", "shipping-staging", "shipping-prod"} {
		s.waitInitialized(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, s.client.Create(t.Context(), newPod(ns, fmt.Sprint("p", i))))
		})
	}
	err = s.client.Create(t.Context(), newPod("shipping-prod", "fourth"))
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.True(t,
		strings.HasSuffix(err.Error(),
			`exceeded quota in policyspace "shipping-app-backend", requested: pods=4, limit: pods=3, used: pods=3 `+
				`(nstpl:quota-exceeded)`), "%v", err)
	s.eventually(func(c *assert.CollectT) {
		out, err := s.kubectl(t.Context(), "", "get", "policyspaces")
		assert.NoError(c, err)
		assert.Regexp(c, `shipping-app-backend +foo-corp/online/shipping-app-backend +3 +pods: 3/3 +True`, out)
	})
	require.NoError(t, s.client.Create(t.Context(), newPod("audit", "not-below")))
}

// requestsCPU gives a pod a request of CPU time.
func requestsCPU(cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}

// createInOrder creates an object. It retries conflicts with other requests of the same test.
func createInOrder(s *testScope, object client.Object) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return s.client.Create(s.t.Context(), object) })
}

func TestPolicySpaceQuotaLimitsUsage(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("root", "", "pods", "4", "services", "1")
	s.createSpace("a", "root", "configmaps", "6", "pods", "2", "requests.cpu", "3")
	s.createSpace("b", "root")
	a1, a2, b := s.createNamespaceInSpace("a1", "a"), s.createNamespaceInSpace("a2", "a"),
		s.createNamespaceInSpace("b", "b")
	s.waitCounted(a1, a2, b)

	t.Run("the error names the nearest exceeded policyspace and its resources", func(t *testing.T) {
		expectErrorNamesNearestSpace(t, s.withT(t), a1, a2, b)
	})

	t.Run("requests are allowed again after a deletion", func(t *testing.T) {
		expectRoomAfterDeletion(t, s.withT(t), a1, a2, b)
	})

	t.Run("a dry run reserves nothing", func(t *testing.T) { expectPodDryRunReservesNothing(t, s.withT(t), a1, a2) })

	t.Run("a limit below the usage denies new objects only", func(t *testing.T) {
		expectLowerLimitDeniesNewObjects(t, s.withT(t), a1, a2)
	})

	t.Run("a namespace that leaves takes its usage along", func(t *testing.T) {
		expectLeavingNamespaceFreesRoom(s.withT(t), a1, b)
	})
}

func expectErrorNamesNearestSpace(t *testing.T, s *testScope, a1, a2, b string) {
	t.Helper()
	require.NoError(t, createInOrder(s, newPod(a1, "p1", requestsCPU("1"))))
	s.expectQuotaExceeded(createInOrder(s, newPod(a2, "p2", requestsCPU("2500m"))), "a", "requests.cpu=3500m",
		"requests.cpu=3")
	s.expectQuotaExceeded(s.client.Create(t.Context(), newPod(a2, "p2", requestsCPU("2500m")), client.DryRunAll), "a",
		"requests.cpu=3500m", "requests.cpu=3")
	require.NoError(t, createInOrder(s, newPod(a2, "p2", requestsCPU("500m"))))
	s.expectQuotaExceeded(createInOrder(s, newPod(a1, "p3", requestsCPU("2"))), "a", "pods=3,requests.cpu=3500m",
		"pods=2,requests.cpu=3")
	s.expectQuotaExceeded(s.client.Create(t.Context(), newPod(a1, "p3", requestsCPU("2")), client.DryRunAll), "a",
		"pods=3,requests.cpu=3500m", "pods=2,requests.cpu=3")
	require.NoError(t, createInOrder(s, newPod(b, "p1")), "no quota limits cpu here")
	require.NoError(t, createInOrder(s, newPod(b, "p2")))
	s.expectQuotaExceeded(createInOrder(s, newPod(b, "p3")), "root", "pods=5", "pods=4")
	s.expectQuotaExceeded(createInOrder(s, newPod(a1, "p3", requestsCPU("1m"))), "a", "pods=3", "pods=2")
	s.waitUsage("root", "pods: 4/4, services: 0/1")
	s.waitUsage("a", "configmaps: 2/6, pods: 2/2, requests.cpu: 1500m/3") // each namespace has kube-root-ca.crt
}

func expectRoomAfterDeletion(t *testing.T, s *testScope, a1, a2, b string) {
	t.Helper()
	require.NoError(t,
		createInOrder(s, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: b, Name: "s"},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
		}))
	s.delete(newPod(a1, "p1"))
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, createInOrder(s, newPod(a2, "p3", requestsCPU("1")))) })
	s.waitUsage("a", "configmaps: 2/6, pods: 2/2, requests.cpu: 1500m/3")
}

func expectPodDryRunReservesNothing(t *testing.T, s *testScope, a1, a2 string) {
	t.Helper()
	dry := newConfigMap(a1, "dry")
	require.NoError(t, s.client.Create(t.Context(), dry, client.DryRunAll))
	require.Empty(t, dry.ResourceVersion, "kubectl nstpl why distinguishes creations from updates by it")
	for i := range 4 {
		require.NoError(t, createInOrder(s, newConfigMap(a1, fmt.Sprint("c", i))))
	}
	s.expectQuotaExceeded(createInOrder(s, newConfigMap(a2, "c")), "a", "configmaps=7", "configmaps=6")
	s.waitEvent(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a2}}, corev1.EventTypeWarning,
		"PolicySpaceQuotaExceeded",
		fmt.Sprintf("exceeded quota in policyspace %q, requested: configmaps=7, limit: configmaps=6", s.name("a")))
	s.eventually(func(c *assert.CollectT) {
		used, _, err := s.operator.Metric(t.Context(), "nstpl_policyspace_quota",
			fmt.Sprintf("policyspace=%q", s.name("a")), `resource="configmaps"`, `type="used"`)
		assert.NoError(c, err)
		assert.InDelta(c, 6, used, 0)
	})
}

func expectLowerLimitDeniesNewObjects(t *testing.T, s *testScope, a1, a2 string) {
	t.Helper()
	require.NoError(t,
		s.client.Patch(t.Context(), s.newSpace("a", ""),
			mergePatch(`{"spec": {"quota": {"hard": {"configmaps": "4"}}}}`)))
	s.waitSpaceStatus("a", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		exceeded := apimeta.FindStatusCondition(status.Conditions, v1alpha1.PolicySpaceExceeded)
		if assert.NotNil(c, exceeded) {
			assert.Equal(c, "configmaps: 6 of 4", exceeded.Message)
		}
	})
	s.expectQuotaExceeded(createInOrder(s, newConfigMap(a2, "c")), "a", "configmaps=7", "configmaps=4")
	updated := newConfigMap(a1, "c0")
	updated.Data = map[string]string{"a": "b"}
	require.NoError(t, s.client.Update(t.Context(), updated))
	for i := range 2 {
		s.delete(newConfigMap(a1, fmt.Sprint("c", i)))
	}
	s.waitUsage("a", "configmaps: 4/4, pods: 2/2, requests.cpu: 1500m/3")
	s.expectQuotaExceeded(createInOrder(s, newConfigMap(a2, "c")), "a", "configmaps=5", "configmaps=4")
}

func expectLeavingNamespaceFreesRoom(s *testScope, a1, b string) {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a1}}
	s.patchNamespace(ns, `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": null}}}`)
	s.waitUsage("a", "configmaps: 1/4, pods: 2/2, requests.cpu: 1500m/3")
	counter := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: a1, Name: v1alpha1.QuotaName}}
	s.waitDeleted(counter)
	s.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b}})
	s.waitUsage("root", "pods: 2/4, services: 0/1")
}

// The API server charges a request to the namespace's own quotas before the policyspace's quota denies it. It corrects
// that when it counts again.
func TestPolicySpaceQuotaDenialsAreNotChargedToOtherQuotas(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "", "requests.cpu", "2")
	ns := s.createNamespaceInSpace("n", "a")
	requesting := func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
	}
	for i := range 5 { // the API server charges them in any order
		own := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: fmt.Sprint("own", i)},
			Spec:       corev1.ResourceQuotaSpec{Hard: resourceList("pods", "4")},
		}
		require.NoError(t, s.client.Create(t.Context(), own))
	}
	for i := range 2 {
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, s.client.Create(t.Context(), newPod(ns, fmt.Sprint("p", i), requesting)))
		})
	}
	charged, exceeded := false, false
	for range 5 {
		err := s.client.Create(t.Context(), newPod(ns, "more", requesting))
		require.Error(t, err)
		// the API server may be counting again meanwhile
		if !apierrors.IsConflict(err) && !strings.Contains(err.Error(), "exceeded quota: own") {
			s.expectQuotaExceeded(err, "a", "requests.cpu=3", "requests.cpu=2")
			exceeded = true
		}
		quotas := &corev1.ResourceQuotaList{}
		require.NoError(t, s.client.List(t.Context(), quotas, client.InNamespace(ns)))
		for _, one := range quotas.Items {
			charged = charged || one.Status.Used.Pods().Value() > 2
		}
	}
	require.True(t, exceeded)
	require.True(t, charged,
		"the API server charged requests that it then denied; if it no longer does, the recount is unnecessary")
	s.eventually(func(c *assert.CollectT) {
		quotas := &corev1.ResourceQuotaList{}
		if !assert.NoError(c, s.client.List(t.Context(), quotas, client.InNamespace(ns))) {
			return
		}
		for _, one := range quotas.Items {
			if one.Name == v1alpha1.QuotaName {
				continue
			}
			assert.EqualValues(c, 2, one.Status.Used.Pods().Value(), one.Name)
			assert.Len(c, one.Spec.Hard, 1, one.Name)
		}
	})
}

// The API server asks four times about a request that it cannot charge.
func TestPolicySpaceQuotaCountsEachDenialOnce(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "", "requests.cpu", "1")
	ns := s.createNamespaceInSpace("n", "a")
	s.waitCounted(ns)
	for denied := 1; denied <= 2; denied++ {
		s.expectQuotaExceeded(createInOrder(s, newPod(ns, "p", requestsCPU("2"))), "a", "requests.cpu=2", "requests.cpu=1")
		count, _, err := s.operator.Metric(t.Context(), "nstpl_policyspace_quota_denials_total",
			fmt.Sprintf("policyspace=%q", s.name("a")))
		require.NoError(t, err)
		require.InDelta(t, denied, count, 0)
	}
}

// The message names the innermost quota that is full: that of the namespace, or else that of the nearest policyspace.
func TestPolicySpaceQuotaNamesTheInnermostQuota(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("outer", "", "pods", "1")
	s.createSpace("inner", "outer", "pods", "1")
	ns := s.createNamespaceInSpace("n", "inner")
	own := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"},
		Spec:       corev1.ResourceQuotaSpec{Hard: resourceList("pods", "2")},
	}
	require.NoError(t, s.client.Create(t.Context(), own))
	s.waitCounted(ns)
	require.NoError(t, s.createWithRetries(newPod(ns, "p0")))
	s.expectQuotaExceeded(s.createWithRetries(newPod(ns, "p1")), "inner", "pods=2", "pods=1")
	require.NoError(t, s.client.Patch(t.Context(), own, mergePatch(`{"spec": {"hard": {"pods": "1"}}}`)))
	s.eventually(func(c *assert.CollectT) {
		err := s.client.Create(t.Context(), newPod(ns, "p1"))
		if assert.Error(c, err) {
			assert.Contains(c, err.Error(), "exceeded quota: own, requested: pods=1, used: pods=1, limited: pods=1, and "+
				"exceeded quota in policyspace \""+s.name("inner")+"\", requested: pods=2, limit: pods=1, used: pods=1")
		}
	})
}

// A request that a nearer policyspace denies reserves nothing in the policyspaces above.
func TestPolicySpaceQuotaDenialsReserveNothingInAncestors(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("outer", "", "pods", "12")
	s.createSpace("small", "outer", "pods", "2")
	s.createSpace("large", "outer", "pods", "60")
	var namespaces []string
	for i := range 3 {
		namespaces = append(namespaces, s.createNamespaceInSpace(fmt.Sprint("s", i), "small"),
			s.createNamespaceInSpace(fmt.Sprint("l", i), "large"))
	}
	var made atomic.Int32
	require.NoError(t, concurrently(48, func(i int) error {
		err := s.createWithRetries(newPod(namespaces[i%len(namespaces)], fmt.Sprint("p", i)))
		if err == nil {
			made.Add(1)
		} else if !strings.Contains(err.Error(), "exceeded quota in policyspace") {
			return err
		}
		return nil
	}))
	require.Equal(t, int32(12), made.Load())
}

// Two replicas allow exactly as much as the quota, even if many requests arrive at once and one replica is killed.
func TestPolicySpaceQuotaIsExactUnderLoad(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	const limit, requests, namespaces = 50, 100, 5
	s, service, second := newReplicas(t)
	s.createSpace("a", "", "pods", fmt.Sprint(limit))
	for i := range namespaces {
		s.createNamespaceInSpace(fmt.Sprint("n", i), "a")
	}
	var group sync.WaitGroup
	errs := make([]error, requests)
	for i := range requests {
		group.Go(func() {
			errs[i] = s.createWithRetries(newPod(s.name(fmt.Sprint("n", i%namespaces)), fmt.Sprint("p", i)))
		})
		if i == requests/2 {
			service.Use(second.Webhooks)
			require.NoError(t, s.operator.Kill())
			s.operator = second
		}
	}
	group.Wait()
	refused := 0
	for _, err := range errs {
		if err != nil {
			s.expectQuotaExceeded(err, "a", "pods=51", "pods=50")
			refused++
		}
	}
	require.Equal(t, requests-limit, refused)
	there := 0
	for i := range namespaces {
		pods := &corev1.PodList{}
		require.NoError(t, s.client.List(t.Context(), pods, client.InNamespace(s.name(fmt.Sprint("n", i)))))
		there += len(pods.Items)
	}
	require.Equal(t, limit, there)
}
