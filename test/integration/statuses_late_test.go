package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/scc"
	"nstpl.dev/nstpl/test/marks"
)

// The operator takes back a status of a policy space that its watch has not shown yet. Until it does, requests for
// limited resources are denied.
func TestALateWatchKeepsNoOldStatusOfAPolicySpace(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	through := restartBehindProxy(t, s.testCluster)
	s.createSpace("late", "", "pods", "10")
	ns := s.createNamespaceInSpace("a", "late")
	s.waitCounted(ns)
	through.holdWatches(t, "/policyspaces")

	repairing, release := through.holdWrites("/namespaces/" + ns + "/resourcequotas/" + v1alpha1.QuotaName)
	usageQuota, err := s.getUsageQuota(t.Context(), ns)
	require.NoError(t, err)
	require.NoError(t, s.client.Patch(t.Context(), usageQuota, mergePatch(`{"metadata": {"annotations": null}}`)))
	waitArrived(t, repairing)
	s.waitSpaceStatus("late", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Equal(c, []string{ns}, status.Uncounted)
	})
	release()
	s.waitSpaceStatus("late", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Empty(c, status.Uncounted)
		assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.PolicySpaceReady))
	})
	require.NoError(t, s.createWithRetries(newPod(ns, "a")))
	through.releaseWatches()
	s.waitUsage("late", "pods: 1/10")
}

// The operator takes back a condition of a rule about attributes that its watch has not shown yet.
func TestALateWatchKeepsNoOldConditionOfARule(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	through := restartBehindProxy(t, s.testCluster)
	role := s.createAttributeRole("", "setter")
	protect := func(short string) *v1alpha1.ClusterProtectedAttribute {
		rule := s.attributeRule(v1alpha1.LabelAttribute, short, v1alpha1.ClusterRoleKind, role)
		return s.protectAttribute("", short, rule).(*v1alpha1.ClusterProtectedAttribute)
	}
	rule := protect("env")
	protect("other") // one watch delivers all rules, so the operator has seen the condition of the first
	through.holdWatches(t, "/clusterprotectedattributes")
	s.replaceAttributeWebhooks(func() {
		s.eventually(func(c *assert.CollectT) {
			assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(rule), rule))
			assert.True(c, apimeta.IsStatusConditionFalse(rule.Status.Conditions, v1alpha1.AttributeEnforced))
		})
	})
	s.waitEnforced(rule)
	through.releaseWatches()
	protect("later")
	s.waitEnforced(rule)
}

// replaceAttributeWebhooks deletes the configuration of the webhook for attributes, and creates it again after a
// function.
func (s attributeFixture) replaceAttributeWebhooks(meanwhile func()) {
	s.t.Helper()
	configuration := func() client.Object {
		return &admissionregistrationv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AttributeWebhookName},
		}
	}
	require.NoError(s.t, s.client.Delete(s.t.Context(), configuration()))
	meanwhile()
	require.NoError(s.t, s.client.Create(s.t.Context(), configuration()))
}

// A new leader does not report that a constraint is in force before it knows whether user IDs are left.
func TestAnExhaustedPoolStaysReportedByANewLeader(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	flags := []string{"--leader-elect=true", "--scc-uid-range=1000000000-1000000009/10"} // one block
	s := newScope(t, borrowCluster(t, flags...))
	s.createNamespace("a")
	s.createNamespace("b")
	createUnusableConstraint(s, "before")
	through := newProxy(t, s.testCluster, "late")
	late, err := s.startReplica(t.Context(), append(flags, through.kubeconfig)...)
	require.NoError(t, err)
	t.Cleanup(func() { _ = late.Kill() })
	through.holdWatches(t, "/policyspaces")
	s.createSpace("unseen", "") // the new leader waits for it before it looks at namespaces

	position, leader := s.auditPosition(), leaseHolder(s)
	require.NoError(t, s.operator.Stop())
	s.operator = late
	waitOtherLeaseHolder(s, leader)
	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, late.Log("waiting until the cache has the objects"), s.name("unseen"))
	})
	through.releaseWatches()
	createUnusableConstraint(s, "after")
	require.Empty(t, s.writesSince(position, func(r request) bool { return r.ObjectRef.Name == s.name("before") }))
}

// createUnusableConstraint creates a constraint that takes user IDs from namespaces, and waits until its condition says
// that none are left.
func createUnusableConstraint(s *testScope, short string) {
	s.t.Helper()
	constraint := &v1alpha1.SecurityContextConstraints{
		ObjectMeta:     metav1.ObjectMeta{Name: s.name(short)},
		RunAsUser:      v1alpha1.RunAsUserStrategyOptions{Type: v1alpha1.MustRunAsRange},
		SELinuxContext: v1alpha1.SELinuxContextStrategyOptions{Type: v1alpha1.RunAsAny},
	}
	s.eventually(func(c *assert.CollectT) {
		if err := s.client.Create(s.t.Context(), constraint.DeepCopy()); !apierrors.IsAlreadyExists(err) {
			assert.NoError(c, err)
		}
		found := &v1alpha1.SecurityContextConstraints{}
		assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(constraint), found))
		ready := apimeta.FindStatusCondition(found.Status.Conditions, v1alpha1.ConditionReady)
		if assert.NotNil(c, ready) {
			assert.Equal(c, scc.ReasonPoolExhausted, ready.Reason)
		}
	})
}
