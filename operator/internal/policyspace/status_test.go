package policyspace

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/internal/webhook"
	"nstpl.dev/nstpl/operator/quota"
)

func TestNextStatusIsReady(t *testing.T) {
	t.Parallel()
	pods := func(n string) quota.Usage {
		return quota.Usage{Used: resourceList("pods", n), ResourceVersion: "9"}
	}
	placed := position{path: "root/s", namespaces: 2}
	for name, test := range map[string]struct {
		change   func(*v1alpha1.PolicySpace)
		observed map[string]quota.Usage
		at       position
		webhooks webhook.State
		failure  error
		status   metav1.ConditionStatus
		// also is the condition that is present while the space is not ready.
		also    string
		reason  string
		message string
	}{
		"counted": {
			observed: map[string]quota.Usage{"a": pods("1"), "b": pods("1")}, at: placed,
			status: metav1.ConditionTrue, reason: "Ready", message: "the path is known and all limits are enforced",
		},
		"a resource that Kubernetes does not count": {
			change: func(s *v1alpha1.PolicySpace) {
				s.Spec.Quota.Hard = resourceList("pods", "3", "nvidia.com/gpu", "4", "count/deployments", "4")
			},
			observed: map[string]quota.Usage{
				"a": {
					Used: resourceList("pods", "1", "nvidia.com/gpu", "0", "count/deployments", "0"), ResourceVersion: "9",
					Assumed: []corev1.ResourceName{"count/deployments", "nvidia.com/gpu"},
				},
				"b": {Used: resourceList("pods", "1", "nvidia.com/gpu", "0", "count/deployments", "0"), ResourceVersion: "9"},
			}, at: placed,
			status: metav1.ConditionTrue, reason: "Ready", message: "the path is known, but the limits of count/deployments, " +
				"nvidia.com/gpu have no effect, because Kubernetes counts no such resources; all others are enforced",
		},
		"a parent that does not exist": {
			at: position{broken: lineageError("s", "root")}, status: metav1.ConditionFalse,
			also: v1alpha1.ConditionReconciling, reason: "NoPath",
			message: "policyspace s is below policyspace root, which does not exist: create it, or choose another parent",
		},
		"its own ancestor": {
			at: position{broken: lineageError("s", "s")}, status: metav1.ConditionFalse,
			also: v1alpha1.ConditionStalled, reason: "NoPath",
			message: "policyspace s is its own ancestor: change the parent of one of its ancestors",
		},
		"the configuration of the webhooks does not exist": {
			observed: map[string]quota.Usage{"a": pods("1"), "b": {}}, at: placed, webhooks: webhook.Deleted,
			status: metav1.ConditionFalse, also: v1alpha1.ConditionStalled, reason: "NotReached",
			message: "ValidatingWebhookConfiguration nstpl-operator does not exist, so the API server enforces no limits and " +
				"no rules for self-service: apply the manifests again",
		},
		"the webhooks are not written yet": {
			observed: map[string]quota.Usage{"a": pods("1"), "b": {}}, at: placed, webhooks: webhook.Missing,
			status: metav1.ConditionFalse, also: v1alpha1.ConditionReconciling, reason: "NotReached",
			message: "ValidatingWebhookConfiguration nstpl-operator lacks webhooks of limits or of rules for self-service, " +
				"or the API server does not use them yet: wait until the operator has written them",
		},
		"namespaces that the API server does not ask about yet": {
			change:   func(s *v1alpha1.PolicySpace) { s.Spec.Quota.Hard = resourceList("pods", "3", "count/namespaces", "2") },
			observed: map[string]quota.Usage{"a": pods("1"), "b": {}}, at: placed, webhooks: webhook.Missing,
			status: metav1.ConditionFalse, also: v1alpha1.ConditionReconciling, reason: "NotReached",
			message: "ValidatingWebhookConfiguration nstpl-operator lacks webhooks of limits or of rules for self-service, " +
				"or the API server does not use them yet: wait until the operator has written them",
		},
		"a probe that failed": {
			observed: map[string]quota.Usage{"a": pods("1"), "b": {}}, at: placed, webhooks: webhook.Missing,
			failure: errors.New("leases are forbidden"),
			status:  metav1.ConditionFalse, also: v1alpha1.ConditionReconciling, reason: "NotReached",
			message: "limits and rules for self-service are perhaps not enforced: leases are forbidden",
		},
		"not counted, and not asked about": {
			change:   func(s *v1alpha1.PolicySpace) { s.Status.Hard = nil },
			observed: map[string]quota.Usage{"a": pods("1"), "b": {}}, at: placed, webhooks: webhook.Missing,
			status: metav1.ConditionFalse, also: v1alpha1.ConditionReconciling, reason: "Counting",
			message: "the API server has not counted usage yet in 1 namespace (b): " +
				"requests for limited resources are denied until it has",
		},
		"not counted yet": {
			change:   func(s *v1alpha1.PolicySpace) { s.Status.Hard = nil },
			observed: map[string]quota.Usage{"a": pods("1"), "b": {}}, at: placed,
			status: metav1.ConditionFalse, also: v1alpha1.ConditionReconciling, reason: "Counting",
			message: "the API server has not counted usage yet in 1 namespace (b): " +
				"requests for limited resources are denied until it has",
		},
		"a usage quota that was deleted": {
			observed: map[string]quota.Usage{"a": pods("1"), "b": {Unknown: true}}, at: placed,
			status: metav1.ConditionFalse, also: v1alpha1.ConditionReconciling, reason: "Counting",
			message: "the ResourceQuota nstpl-policyspace is missing or was changed in namespaces b: " +
				"requests for limited resources are denied until the operator has repaired it",
		},
		"a new namespace in which nothing is counted": {
			observed: map[string]quota.Usage{"a": pods("1"), "b": {}}, at: placed,
			status: metav1.ConditionTrue, reason: "Ready", message: "the path is known and all limits are enforced",
		},
		"a root without namespaces and children": {
			change: func(s *v1alpha1.PolicySpace) {
				s.Spec.Quota = nil
				s.Labels = map[string]string{v1alpha1.TreeLabel: "s"}
			},
			at: position{path: "s"}, status: metav1.ConditionTrue, reason: "Empty",
			message: "the tree s has no namespaces; if you renamed its root, delete the remaining objects: kubectl delete " +
				"policyspaces,namespacetemplates,clusterroles,clusterrolebindings -l policy.nstpl.dev/tree=s",
		},
		"a root with children": {
			change: func(s *v1alpha1.PolicySpace) {
				s.Spec.Quota = nil
				s.Labels = map[string]string{v1alpha1.TreeLabel: "s"}
			},
			at: position{path: "s", hasChildren: true}, status: metav1.ConditionTrue, reason: "Ready",
			message: "the path is known and all limits are enforced",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			space := countedSpace(resourceList("pods", "3"), resourceList("pods", "2"))
			space.Generation = 4
			if test.change != nil {
				test.change(space)
			}
			status, _ := nextStatus(space, []string{"a", "b"}, test.observed, test.at,
				enforcement{webhooks: test.webhooks, failure: test.failure})
			ready := apimeta.FindStatusCondition(status.Conditions, v1alpha1.PolicySpaceReady)
			require.Equal(t, test.status, ready.Status)
			for _, abnormal := range []string{v1alpha1.ConditionReconciling, v1alpha1.ConditionStalled} {
				require.Equal(t, test.also == abnormal, apimeta.IsStatusConditionTrue(status.Conditions, abnormal),
					abnormal)
				require.Equal(t, test.also == abnormal, apimeta.FindStatusCondition(status.Conditions, abnormal) != nil)
			}
			require.Equal(t, test.reason, ready.Reason)
			require.Equal(t, test.message, ready.Message)
			require.EqualValues(t, 4, ready.ObservedGeneration)
			require.EqualValues(t, 4, status.ObservedGeneration)
			require.EqualValues(t, test.at.namespaces, status.Namespaces)
			require.Equal(t, test.at.path, status.Path)
		})
	}
}

// lineageError returns the error about the path of a policy space with a parent, which does not exist unless it is the
// space itself.
func lineageError(space, parent string) error {
	_, err := hierarchy.NewForest([]*v1alpha1.PolicySpace{{
		ObjectMeta: metav1.ObjectMeta{Name: space}, Spec: v1alpha1.PolicySpaceSpec{Parent: parent},
	}}).Lineage(space)
	return err
}

func TestNextStatusIsExceeded(t *testing.T) {
	t.Parallel()
	next := func(space *v1alpha1.PolicySpace, pods string) *metav1.Condition {
		observed := map[string]quota.Usage{"a": {Used: resourceList("pods", pods), ResourceVersion: "9"}}
		space.Status, _ = nextStatus(space, []string{"a"}, observed, position{}, enforcement{})
		return apimeta.FindStatusCondition(space.Status.Conditions, v1alpha1.PolicySpaceExceeded)
	}
	space := countedSpace(resourceList("pods", "3"), nil)
	within := next(space, "3")
	require.Equal(t, metav1.ConditionFalse, within.Status)
	require.Equal(t, "WithinQuota", within.Reason)
	require.Equal(t, "usage is within all limits", within.Message)
	exceeded := next(space, "4")
	require.Equal(t, metav1.ConditionTrue, exceeded.Status)
	require.Equal(t, "Exceeded", exceeded.Reason)
	require.Equal(t, "pods: 4 of 3", exceeded.Message)
	space.Spec.Quota.Hard = resourceList("pods", "3", "secrets", "5")
	require.Equal(t, metav1.ConditionTrue, next(space, "4").Status, "what is counted suffices")
	unknown := next(space, "3")
	require.Equal(t, metav1.ConditionUnknown, unknown.Status, "secrets are not counted")
	require.Equal(t, "what is counted so far is within all limits", unknown.Message)
	space.Spec.Quota = nil
	require.Nil(t, next(space, "4"))
}

// Namespaces with reservations above their usage are pending.
func TestNextStatusReturnsPendingNamespaces(t *testing.T) {
	t.Parallel()
	space := countedSpace(resourceList("pods", "9"), nil, reserved("a", "3", "5"), reserved("b", "3", "5"))
	status, pending := nextStatus(space, []string{"a", "b"}, map[string]quota.Usage{
		"a": {Used: resourceList("pods", "2"), ResourceVersion: "5"},
		"b": {Used: resourceList("pods", "2"), ResourceVersion: "6"},
	}, position{}, enforcement{})
	require.Equal(t, []string{"a"}, pending)
	require.Equal(t, space.Status.Reservations[:1], status.Reservations)
	require.EqualValues(t, 5, status.Used.Pods().Value())
}

func TestConditionsNameFewNamespaces(t *testing.T) {
	t.Parallel()
	require.Equal(t, "a, b, c", nameFirst([]string{"a", "b", "c"}))
	require.Equal(t, "a, b, c, …", nameFirst([]string{"a", "b", "c", "d"}))
}

func TestNextCheck(t *testing.T) {
	t.Parallel()
	limit := resourceList("pods", "3")
	space := countedSpace(limit, nil)
	counted := v1alpha1.PolicySpaceStatus{Hard: limit}
	unknown := v1alpha1.PolicySpaceStatus{Hard: limit, Uncounted: []string{"a"}}
	for name, test := range map[string]struct {
		status          v1alpha1.PolicySpaceStatus
		remaining, want time.Duration
	}{
		"counted":                  {counted, 0, 0},
		"counted, with a wait":     {counted, time.Minute, time.Minute},
		"not counted":              {v1alpha1.PolicySpaceStatus{}, 0, statusDelay},
		"not counted, with a wait": {v1alpha1.PolicySpaceStatus{}, time.Minute, time.Minute},
		"unknown":                  {unknown, 0, statusDelay},
	} {
		require.Equal(t, test.want, nextCheck(space, test.status, test.remaining), name)
	}
}

func TestMustWrite(t *testing.T) {
	t.Parallel()
	many := make([]v1alpha1.QuotaReservation, manySettled)
	one := v1alpha1.PolicySpaceStatus{Path: "p", Reservations: many[:1]}
	none := v1alpha1.PolicySpaceStatus{Path: "p"}
	require.False(t, mustWrite(one, one))
	require.False(t, mustWrite(one, none), "a settled reservation may remain")
	require.True(t, mustWrite(v1alpha1.PolicySpaceStatus{Path: "p", Reservations: many}, none), "many may not")
	require.True(t, mustWrite(one, v1alpha1.PolicySpaceStatus{Path: "q", Reservations: many[:1]}))
}
