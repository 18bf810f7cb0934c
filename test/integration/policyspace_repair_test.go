package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// usageQuotaDamages are changes of the counting ResourceQuota that an administrator can make, or that templates made
// before they were vetted for it.
var usageQuotaDamages = map[string]func(s *testScope, counter *corev1.ResourceQuota){
	"other values":     patchesUsageQuota("", `{"spec": {"hard": {"pods": "100"}}}`),
	"other resources":  patchesUsageQuota("", `{"spec": {"hard": {"pods": null, "services": "100"}}}`),
	"enforced values":  patchesUsageQuota("status", `{"status": {"hard": {"pods": "100"}}}`),
	"nothing enforced": patchesUsageQuota("status", `{"status": {"hard": null, "used": null}}`),
	"no label":         patchesUsageQuota("", `{"metadata": {"labels": null}}`),
	"a template": patchesUsageQuota("",
		`{"metadata": {"labels": {"policy/namespace-template-name": "forged"}}, "spec": {"hard": {"pods": "100"}}}`),
	"scopes": replacesUsageQuota(func(c *corev1.ResourceQuota) {
		c.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	}),
	"scopes, by a template": replacesUsageQuota(func(c *corev1.ResourceQuota) {
		c.Labels = map[string]string{v1alpha1.TemplateNameLabel: "forged"}
		c.Spec.Hard = resourceList("pods", "100")
		c.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
	}),
	"a selector": replacesUsageQuota(func(c *corev1.ResourceQuota) {
		c.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{
				ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: corev1.ScopeSelectorOpIn,
				Values: []string{"high"},
			},
		}}
	}),
	"deletion": func(s *testScope, counter *corev1.ResourceQuota) { s.delete(counter) },
}

func patchesUsageQuota(subresource, patch string) func(*testScope, *corev1.ResourceQuota) {
	return func(s *testScope, counter *corev1.ResourceQuota) {
		s.t.Helper()
		body := mergePatch(patch)
		if subresource == "status" {
			require.NoError(s.t, s.client.Status().Patch(s.t.Context(), counter.DeepCopy(), body))
		} else {
			require.NoError(s.t, s.client.Patch(s.t.Context(), counter.DeepCopy(), body))
		}
	}
}

// replacesUsageQuota returns a change that replaces the counting ResourceQuota before the operator can create it again.
func replacesUsageQuota(change func(*corev1.ResourceQuota)) func(*testScope, *corev1.ResourceQuota) {
	return func(s *testScope, counter *corev1.ResourceQuota) {
		s.t.Helper()
		other := &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{
				Namespace: counter.Namespace, Name: counter.Name, Labels: counter.Labels,
				Annotations: counter.Annotations,
			},
			Spec: *counter.Spec.DeepCopy(),
		}
		change(other)
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, client.IgnoreNotFound(s.client.Delete(s.t.Context(), counter.DeepCopy())))
			assert.NoError(c, s.client.Create(s.t.Context(), other.DeepCopy()))
		})
	}
}

// createFullSpace creates a policyspace that allows 3 pods, and creates these in two namespaces.
func createFullSpace(s *testScope, short string) (first, second string) {
	s.t.Helper()
	s.createSpace(short, "", "pods", "3")
	first, second = s.createNamespaceInSpace(short+"-first", short), s.createNamespaceInSpace(short+"-second", short)
	s.waitCounted(first, second)
	for _, ns := range []string{first, first, second} {
		require.NoError(s.t,
			s.createWithRetries(&corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: ns, GenerateName: "p-"}, Spec: newPod(ns, "p").Spec,
			}))
	}
	s.waitUsage(short, "pods: 3/3")
	return first, second
}

// expectRepairedAndFull waits until the operator has repaired the ResourceQuota, and fails if a pod is allowed in one
// of the namespaces.
func expectRepairedAndFull(s *testScope, short, spoiled string, namespaces ...string) {
	s.t.Helper()
	counter := &corev1.ResourceQuota{}
	s.eventually(func(c *assert.CollectT) {
		if assert.NoError(c,
			s.client.Get(s.t.Context(), client.ObjectKey{Namespace: spoiled, Name: v1alpha1.QuotaName}, counter)) {
			assert.Equal(c, map[string]string{"app.kubernetes.io/managed-by": "nstpl"}, counter.Labels)
			assert.Contains(c, counter.Annotations, v1alpha1.RecountAnnotation)
			assert.Equal(c, "1E", counter.Spec.Hard.Pods().String())
			assert.Equal(c, "1E", counter.Status.Hard.Pods().String())
			assert.Empty(c, counter.Spec.Scopes)
			assert.Nil(c, counter.Spec.ScopeSelector)
		}
	})
	for _, ns := range namespaces {
		s.eventually(func(c *assert.CollectT) {
			err := s.client.Create(s.t.Context(), newPod(ns, "more"))
			if err == nil || apierrors.IsAlreadyExists(err) {
				s.t.Errorf("allowed in %s: %v", ns, err)
				return
			}
			assert.ErrorContains(c, err,
				fmt.Sprintf("exceeded quota in policyspace %q, requested: pods=4, limit: pods=3", s.name(short)))
		})
	}
	s.waitCounted(namespaces...)
	s.waitSpaceStatus(short, func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Equal(c, "pods: 3/3", status.Quota)
		assert.Empty(c, status.Uncounted)
		assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.PolicySpaceReady))
	})
}

// The counting ResourceQuota is repaired after every damage, and meanwhile nothing is allowed that would exceed the
// quota.
func TestPolicySpaceQuotaObjectIsRepaired(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	first, second := createFullSpace(s, "a")
	for name, spoil := range usageQuotaDamages {
		t.Log(name)
		counter := &corev1.ResourceQuota{}
		require.NoError(t,
			s.client.Get(t.Context(), client.ObjectKey{Namespace: first, Name: v1alpha1.QuotaName}, counter))
		spoil(s, counter)
		expectRepairedAndFull(s, "a", first, first, second)
	}
}

// Damages that happen while the operator is down are repaired when it starts.
func TestPolicySpaceQuotaObjectIsRepairedAfterARestart(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	spaces, namespaces := map[string]string{}, map[string][2]string{}
	for name := range usageQuotaDamages {
		spaces[name] = fmt.Sprint("s", len(spaces))
		first, second := createFullSpace(s, spaces[name])
		namespaces[name] = [2]string{first, second}
	}
	require.NoError(t, s.operator.Kill())
	for name, spoil := range usageQuotaDamages {
		counter := &corev1.ResourceQuota{}
		require.NoError(t,
			s.client.Get(t.Context(), client.ObjectKey{Namespace: namespaces[name][0], Name: v1alpha1.QuotaName},
				counter))
		spoil(s, counter)
	}
	require.NoError(t, s.startOperator(t.Context()))
	for name := range usageQuotaDamages {
		t.Log(name)
		expectRepairedAndFull(s, spaces[name], namespaces[name][0], namespaces[name][0], namespaces[name][1])
	}
}
