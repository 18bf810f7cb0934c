package integration_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// Only the operator may change the ResourceQuota by which the API server counts. If an administrator deletes it, the
// operator creates it again.
func TestPolicySpaceQuotaObjectIsProtected(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "", "pods", "2")
	ns := s.createNamespaceInSpace("n", "a")
	require.NoError(t, s.createWithRetries(newPod(ns, "p")))
	person := s.newUser("jane")
	s.grant(s.name("quotas"), userSubject("jane"), policyRule("*", "", "resourcequotas resourcequotas/status"))
	s.eventually(func(c *assert.CollectT) {
		err := person.CoreV1().ResourceQuotas(ns).Delete(t.Context(), v1alpha1.QuotaName, metav1.DeleteOptions{})
		assert.ErrorContains(c, err, "is managed by the operator: user jane needs the verb update on policyspaces/status")
	})
	require.ErrorContains(t,
		person.CoreV1().ResourceQuotas(ns).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}),
		"is managed by the operator")
	for _, subresource := range []string{"", "status"} {
		body := `{"spec": {"hard": null}, "status": {"used": {"pods": "0"}}}`
		_, err := person.CoreV1().ResourceQuotas(ns).Patch(t.Context(), v1alpha1.QuotaName,
			"application/merge-patch+json", []byte(body), metav1.PatchOptions{}, subresource)
		require.ErrorContains(t, err, "is managed by the operator")
	}
	counter := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.QuotaName}}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(counter), counter))
	replaced := counter.DeepCopy()
	replaced.Spec.Hard = resourceList("pods", "100")
	_, err := person.CoreV1().ResourceQuotas(ns).Update(t.Context(), replaced, metav1.UpdateOptions{})
	require.ErrorContains(t, err, "is managed by the operator")
	outside := s.createNamespace("outside").Name
	_, err = person.CoreV1().ResourceQuotas(outside).Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.QuotaName},
	}, metav1.CreateOptions{})
	require.ErrorContains(t, err, "is managed by the operator")
	_, err = person.CoreV1().ResourceQuotas(outside).Apply(t.Context(),
		applycorev1.ResourceQuota(v1alpha1.QuotaName, outside), metav1.ApplyOptions{FieldManager: "jane"})
	require.ErrorContains(t, err, "is managed by the operator")
	s.delete(counter)
	s.eventually(func(c *assert.CollectT) {
		again := &corev1.ResourceQuota{}
		if assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(counter), again)) {
			assert.NotEqual(c, counter.UID, again.UID)
			assert.EqualValues(c, 1, again.Status.Used.Pods().Value())
		}
	})
	s.waitCounted(ns) // a count in progress may miss usage that is added meanwhile
	s.waitUsage("a", "pods: 1/2")
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Create(t.Context(), newPod(ns, "q"), client.DryRunAll))
	})
	require.NoError(t, s.createWithRetries(newPod(ns, "q")))
	s.expectQuotaExceeded(s.createWithRetries(newPod(ns, "r")), "a", "pods=3", "pods=2")
	s.waitUsage("a", "pods: 2/2")
	s.expectQuotaExceeded(s.createWithRetries(newPod(ns, "r"), client.DryRunAll), "a", "pods=3", "pods=2")
	// The ResourceQuota is deleted with its namespace.
	s.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	s.waitDeleted(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.QuotaName}})
}

// Administrators' writes are not held, but they cannot exceed a quota either while a new namespace's usage is not
// counted yet.
func TestPolicySpaceQuotaIsEnforcedInUncountedNamespaces(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "", "persistentvolumeclaims", "12")
	s.createNamespaceInSpace("first", "a")
	claim := func(namespace, name string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: resourceList("storage", "1Gi")},
			},
		}
	}
	var made atomic.Int32
	require.NoError(t, concurrently(5, func(i int) error {
		ns := s.name(fmt.Sprint("n", i))
		young := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: ns, Labels: map[string]string{v1alpha1.PolicySpaceLabel: s.name("a")},
		}}
		if err := s.client.Create(t.Context(), young); err != nil {
			return err
		}
		return concurrently(10, func(j int) error {
			err := s.createWithRetries(claim(ns, fmt.Sprint("c", j)))
			if err == nil {
				made.Add(1)
			} else if strings.Contains(err.Error(), "exceeded quota in policyspace") {
				return nil
			}
			return err
		})
	}))
	require.Equal(t, int32(12), made.Load())
	s.expectQuotaExceeded(s.createWithRetries(claim(s.name("first"), "c")), "a", "persistentvolumeclaims=13",
		"persistentvolumeclaims=12")
}

// The operator populates limited kinds without waiting for a count of its own writes.
func TestPolicySpaceQuotaCountsPopulatedObjects(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "", "configmaps", "10", "requests.storage", "10Gi")
	s.createTemplate("defaults", documents(configMap("settings", "v"), `
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 4Gi}}}
`))
	s.createNamespaceInSpace("first", "a")
	ns := s.createNamespace("n", s.inSpace("a"))
	s.waitInitialized(ns)
	s.waitPopulated(ns)
	s.waitUsage("a", "configmaps: 4/10, requests.storage: 8Gi/10Gi")
	writes := s.countWrites(ns)
	require.Equal(t, 1, writes["patch configmaps"])
	require.Equal(t, 1, writes["patch persistentvolumeclaims"], "the operator must not be asked to retry")
}

// When a quota is added, existing objects are counted before anything else is allowed.
func TestPolicySpaceQuotaAddedLaterCountsExistingUsage(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "")
	var namespaces []string
	for i := range 5 {
		ns := s.createNamespaceInSpace(fmt.Sprint("n", i), "a")
		namespaces = append(namespaces, ns)
		for j := range 3 {
			require.NoError(t, s.client.Create(t.Context(), newPod(ns, fmt.Sprint("p", j))))
		}
	}
	limit := s.newSpace("a", "")
	require.NoError(t,
		s.client.Patch(t.Context(), limit,
			mergePatch(`{"spec": {"quota": {"hard": {"pods": 16}}}}`)))
	s.waitSpaceStatus("a", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Equal(c, "pods: 15/16", status.Quota)
		assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.PolicySpaceReady))
	})
	s.waitCounted(namespaces...)
	require.NoError(t, s.createWithRetries(newPod(namespaces[0], "last")))
	s.expectQuotaExceeded(s.createWithRetries(newPod(namespaces[4], "more")), "a", "pods=17", "pods=16")
	// When the quota is removed, the ResourceQuotas are deleted and nothing is limited.
	require.NoError(t,
		s.client.Patch(t.Context(), limit,
			mergePatch(`{"spec": {"quota": null}}`)))
	for _, ns := range namespaces {
		s.waitDeleted(&corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: v1alpha1.QuotaName}})
		require.NoError(t, s.createWithRetries(newPod(ns, "more")))
	}
}

// Resources that no controller counts neither keep a namespace initializing nor a policyspace from being ready.
func TestPolicySpaceQuotaAcceptsUncountableResources(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	admin, warnings := s.newWarnedUser("admin", s.allVerbsGroup())
	space := s.newSpace("a", "", "pods", "1", "nvidia.com/gpu", "4", "count/deployments", "4")
	require.NoError(t, admin.Create(t.Context(), space))
	require.Contains(t, warnings.drain(), "policyspace "+space.Name+
		" limits nvidia.com/gpu, which Kubernetes does not count: limit requests.nvidia.com/gpu instead")
	ns := s.createNamespaceInSpace("n", "a")
	require.NoError(t, s.createWithRetries(newPod(ns, "p")))
	s.expectQuotaExceeded(s.createWithRetries(newPod(ns, "q")), "a", "pods=2", "pods=1")
	s.waitSpaceStatus("a", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		condition := apimeta.FindStatusCondition(status.Conditions, v1alpha1.PolicySpaceReady)
		if assert.NotNil(c, condition) {
			assert.Equal(c, metav1.ConditionTrue, condition.Status)
			assert.Contains(c, condition.Message, "the limits of count/deployments, nvidia.com/gpu have no effect")
		}
	})
}

// The usage of a namespace that moves counts in its new policyspace before anything else is allowed.
func TestPolicySpaceQuotaCountsMovedNamespaces(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "", "pods", "5")
	s.createSpace("b", "", "pods", "2")
	ns := s.createNamespaceInSpace("n", "a")
	for i := range 2 {
		require.NoError(t, s.createWithRetries(newPod(ns, fmt.Sprint("p", i))))
	}
	s.patchNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, s.name("b")))
	s.waitSpaceStatus("b", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Equal(c, "pods: 2/2", status.Quota)
	})
	s.expectQuotaExceeded(s.createWithRetries(newPod(ns, "more")), "b", "pods=3", "pods=2")
}

// A reservation for a write that never happened is released.
func TestPolicySpaceQuotaReleasesUnusedReservations(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "", "pods", "5")
	ns := s.createNamespaceInSpace("n", "a")
	require.NoError(t, s.createWithRetries(newPod(ns, "p")))
	s.waitUsage("a", "pods: 1/5")
	book := func(c *assert.CollectT) {
		counter, space := &corev1.ResourceQuota{}, &v1alpha1.PolicySpace{}
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: v1alpha1.QuotaName}, counter))
		counted := len(counter.Spec.Hard) == 1 && len(counter.Status.Hard) == 1 && len(counter.Status.Used) == 1
		assert.True(c, counted, "the second count is not complete")
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: s.name("a")}, space))
		if !counted {
			return
		}
		space.Status.Reservations = []v1alpha1.QuotaReservation{{
			Namespace: ns, Used: resourceList("pods", "5"), Since: counter.ResourceVersion,
		}}
		space.Status.Used, space.Status.Quota = resourceList("pods", "5"), "pods: 5/5"
		assert.NoError(c, s.client.Status().Update(t.Context(), space))
	}
	s.eventually(book)
	s.eventually(func(c *assert.CollectT) { // until the operator knows the reservation
		assert.ErrorContains(c, s.client.Create(t.Context(), newPod(ns, "q"), client.DryRunAll),
			"requested: pods=6, limit: pods=5")
	})
	// It is released at once when a request needs the room.
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, s.client.Create(t.Context(), newPod(ns, "wanted"))) })
	s.delete(newPod(ns, "wanted"))
	s.waitUsage("a", "pods: 1/5")
	// It is also released if nothing else happens in the policyspace.
	s.eventually(book)
	s.waitUsage("a", "pods: 1/5")
	require.NoError(t, s.createWithRetries(newPod(ns, "q")))
}

// No user keeps the usage of a namespace unknown by a ResourceQuota that allows no other: all namespaces of the policy
// space would wait.
func TestAQuotaOfQuotasKeepsNoUsageUnknown(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	limited := s.createSpace("a", "", "pods", "5")
	unlimited := s.createSpace("later", "")
	other := s.createNamespaceInSpace("other", "a")
	s.waitCounted(other)
	full := map[string]*corev1.ResourceQuota{}
	for short, limit := range map[string]corev1.ResourceName{
		"entering": corev1.ResourceQuotas, "inside": "count/resourcequotas",
	} {
		ns := s.createNamespace(short)
		full[short] = &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "full"},
			Spec:       corev1.ResourceQuotaSpec{Hard: resourceList(string(limit), "1")},
		}
		require.NoError(t, s.client.Create(t.Context(), full[short]))
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(full[short]), full[short]))
			assert.EqualValues(c, 1, full[short].Status.Used.Name(limit, resource.DecimalSI).Value())
		})
		s.eventually(func(c *assert.CollectT) { // the API server's cache may be later than the status
			more := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "more"}}
			assert.ErrorContains(c, s.client.Create(t.Context(), more, client.DryRunAll), "exceeded quota: full")
		})
	}
	entering, inside := s.name("entering"), s.name("inside")
	s.moveNamespace(inside, "later")
	s.waitInSpace(inside, "later")
	require.NoError(t, s.client.Patch(t.Context(), unlimited, mergePatch(`{"spec": {"quota": {"hard": {"pods": 5}}}}`)))
	s.moveNamespace(entering, "a")
	s.waitCounted(entering, inside)
	for short, space := range map[string]*v1alpha1.PolicySpace{"a": limited, "later": unlimited} {
		s.waitSpaceStatus(short, func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
			assert.Empty(c, status.Uncounted)
			assert.Contains(c, status.Hard, corev1.ResourceName("pods"), space.Name)
		})
	}
	require.NoError(t, s.createWithRetries(newPod(other, "p")))
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(full["inside"]), full["inside"]))
	require.Equal(t, resourceList("count/resourcequotas", "1"), full["inside"].Spec.Hard)
}

// A namespace that waits for its usage to be counted opens when the limits are removed.
func TestNamespacesOpenWhenLimitsAreRemoved(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	space := s.createSpace("a", "", "pods", "2")
	template := s.createTemplate("defaults", configMap("settings", "v"))
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	require.NoError(t, s.operator.Kill())
	ns := s.createNamespace("n", s.inSpace("a"))
	s.applyYAML(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-quotas}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [resourcequotas]}]
  validations: [{expression: "request.namespace != '%s'", message: "no ResourceQuota here"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-quotas}
spec: {policyName: no-quotas, validationActions: [Deny]}
`, ns.Name))
	s.eventually(func(c *assert.CollectT) { // until the API server enforces it
		probe := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "probe"}}
		assert.ErrorContains(c, s.client.Create(t.Context(), probe, client.DryRunAll), "no ResourceQuota here")
	})
	require.NoError(t, s.startOperator(t.Context()))
	s.waitPresent(ns, configMap("settings", "v"))
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.EqualValues(c, 1, status.Namespaces.Populated)
	})
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
	require.Contains(t, ns.Labels, v1alpha1.InitializingLabel)
	require.NoError(t, s.client.Patch(t.Context(), space, mergePatch(`{"spec": {"quota": null}}`)))
	s.waitInitialized(ns)
}
