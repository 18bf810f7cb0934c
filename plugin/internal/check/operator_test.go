package check

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

func TestTheDeploymentOfTheOperator(t *testing.T) {
	t.Parallel()
	set := func(t *testing.T, a *after, value int64, fields ...string) {
		t.Helper()
		require.NoError(t, unstructured.SetNestedField(a.stored[operatorDeployment].value.Object, value, fields...))
	}
	for name, test := range map[string]struct {
		change          func(t *testing.T, a *after)
		status          Status
		message, remedy string
	}{
		"available": {func(*testing.T, *after) {}, OK, "2 of 2 replicas of the operator are available", ""},
		"one is not available": {func(t *testing.T, a *after) {
			t.Helper()
			set(t, a, 1, "status", "availableReplicas")
		}, Warning, "1 of 2 replicas", "kubectl get pods"},
		"none is available": {func(t *testing.T, a *after) {
			t.Helper()
			set(t, a, 0, "status", "availableReplicas")
		}, Failure, "0 of 2 replicas", "kubectl logs -n nstpl-system -l app.kubernetes.io/name=nstpl-operator --prefix"},
		"scaled to zero": {func(t *testing.T, a *after) {
			t.Helper()
			set(t, a, 0, "spec", "replicas")
		}, Failure, "scaled to 0 replicas", "kubectl scale deployment/nstpl-operator"},
		"being replaced": {func(t *testing.T, a *after) {
			t.Helper()
			set(t, a, 1, "status", "updatedReplicas")
		}, Warning, "being replaced", "kubectl rollout status"},
		"missing": {func(_ *testing.T, a *after) {
			a.stored[operatorDeployment] = fact[*unstructured.Unstructured]{err: errNotFound}
		}, Failure, "does not exist", "apply install.yaml"},
		"forbidden": {func(_ *testing.T, a *after) {
			a.stored[operatorDeployment] = fact[*unstructured.Unstructured]{err: errForbidden}
		}, Unknown, "you may not get deployments in namespace nstpl-system", "administrator"},
		"outside of the cluster": {func(t *testing.T, a *after) {
			t.Helper()
			set(t, a, 0, "status", "availableReplicas")
			a.hooks.value = []hook{{configuration: v1alpha1.WebhookName, client: admissionregistrationv1.WebhookClientConfig{
				URL: new("https://operator.example.com/validate"),
			}}}
		}, OK, "calls it at https://operator.example.com/validate", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := healthy(t)
			set(t, a, 2, "status", "availableReplicas")
			set(t, a, 2, "status", "updatedReplicas")
			test.change(t, a)
			requireResult(t, []Result{checkDeployment(a)}, test.status, test.message, test.remedy)
		})
	}
	require.Equal(t, "nstpl-operator", healthy(t).image())
}

func TestTheLeader(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change          func(a *after)
		status          Status
		message, remedy string
	}{
		"leads": {func(*after) {}, OK, "replica pod-1 leads", ""},
		"ahead of the API server's clock": {
			func(a *after) { a.lease.value = leaseOf("v1", -time.Minute) }, OK, "replica pod-1 leads", "",
		},
		"renewed at the last moment": {
			func(a *after) { a.lease.value = leaseOf("v1", 15*time.Second) }, OK, "replica pod-1 leads", "",
		},
		"expired": {
			func(a *after) { a.lease.value = leaseOf("v1", 3*time.Hour) }, Failure,
			"pod-1 renewed the lease for the last time 3h ago", "kubectl get pods",
		},
		"released": {
			func(a *after) { a.lease.value.Spec.HolderIdentity = new("") }, Failure, "its lease is not held", "kubectl get pods",
		},
		"none ever": {func(a *after) { a.lease.err = errNotFound }, Failure, "no operator has ever led", "kubectl get pods"},
		"forbidden": {func(a *after) { a.lease.err = errForbidden }, Unknown, "you may not get the lease", "administrator"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := healthy(t)
			test.change(a)
			requireResult(t, []Result{checkLeader(a)}, test.status, test.message, test.remedy)
		})
	}
	a := healthy(t)
	a.lease.err = errNotFound
	containers, _, _ := unstructured.NestedSlice(a.stored[operatorDeployment].value.Object,
		"spec", "template", "spec", "containers")
	containers[0].(map[string]any)["args"] = []any{"--leader-elect=false"} //nolint:forcetypeassert // of the manifests
	require.NoError(t, unstructured.SetNestedSlice(a.stored[operatorDeployment].value.Object, containers,
		"spec", "template", "spec", "containers"))
	requireResult(t, []Result{checkLeader(a)}, OK, "without leader election", "")
	a.lease = fact[*coordinationv1.Lease]{value: leaseOf("v1", 3*time.Hour)}
	requireResult(t, []Result{checkLeader(a)}, OK, "without leader election", "")
}

func TestSync(t *testing.T) {
	t.Parallel()
	a := healthy(t)
	a.sync.err = errNotFound
	require.Empty(t, checkSync(a), "nothing needs it")
	a.own[v1alpha1.PolicyRepositories.Resource] = fact[[]*ownObject]{value: []*ownObject{{}, {}}}
	a.syncLease.err = errNotFound
	requireResult(t, checkSync(a), Failure, "not installed, and nothing follows 2 PolicyRepository objects",
		"apply sync.yaml")
	a.syncLease = fact[*coordinationv1.Lease]{value: leaseOf("v1", 0)}
	requireResult(t, checkSync(a), OK, "nstpl-sync runs on pod-1, outside of the cluster", "")
	a.syncLease.value = leaseOf("v1", 3*time.Hour)
	requireResult(t, checkSync(a), Failure, "pod-1 renewed the lease for the last time 3h ago, and nothing follows 2",
		"start nstpl-sync where it ran before")
	a.syncLease.value.Spec.HolderIdentity = new("")
	requireResult(t, checkSync(a), Failure, "nothing holds the lease", "start nstpl-sync where it ran before")
	a.syncLease = fact[*coordinationv1.Lease]{err: errForbidden}
	requireResult(t, checkSync(a), Unknown, "you may not get the lease nstpl-sync", "administrator")
	a.syncLease.err, a.sync.err = errNotFound, errForbidden
	requireResult(t, checkSync(a), Unknown, "you may not get deployments", "administrator")
	a.syncLease = fact[*coordinationv1.Lease]{value: leaseOf("v1", 0)}
	requireResult(t, checkSync(a), OK, "nstpl-sync runs on pod-1", "")
}

// A replica that cannot write its lease is ready, and so is one that waits for another one to end.
func TestSyncFollowsIfAReplicaLeads(t *testing.T) {
	t.Parallel()
	held := fact[*coordinationv1.Lease]{value: leaseOf("v1", 0)}
	expired := fact[*coordinationv1.Lease]{value: leaseOf("v1", time.Hour)}
	never, forbidden := fact[*coordinationv1.Lease]{err: errNotFound}, fact[*coordinationv1.Lease]{err: errForbidden}
	const pods = "kubectl logs -n nstpl-system -l app.kubernetes.io/name=nstpl-sync --prefix"
	for name, test := range map[string]struct {
		lease               fact[*coordinationv1.Lease]
		replicas, available int32
		flag                string
		status              Status
		message, remedy     string
	}{
		"a replica leads":              {held, 1, 1, "", OK, "nstpl-sync runs on pod-1", ""},
		"available, but none leads":    {expired, 1, 1, "", Failure, "nstpl-sync leads, pod-1 renewed the", pods},
		"available, but none ever led": {never, 1, 1, "", Failure, "nstpl-sync leads, and nothing follows", pods},
		"none is available":            {never, 1, 0, "", Failure, "nstpl-sync is available, and nothing", pods},
		"scaled to 0":                  {expired, 0, 0, "", Failure, "has no pods, pod-1 renewed the lease", "kubectl scale"},
		"scaled to 0, runs elsewhere":  {held, 0, 0, "", OK, "nstpl-sync runs on pod-1, outside of the cluster", ""},
		"the lease is unknown":         {forbidden, 1, 1, "", Unknown, "may not get the lease nstpl-sync", "administrator"},
		"without election":             {expired, 1, 1, "--leader-elect=false", OK, "nstpl-sync is available", ""},
		"without election, not available": {
			held, 1, 0, "--leader-elect=false", Failure, "nstpl-sync is available, and nothing follows", pods,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			deployment := &appsv1.Deployment{Status: appsv1.DeploymentStatus{
				Replicas: test.replicas, AvailableReplicas: test.available,
			}}
			deployment.Spec.Template.Spec.Containers = []corev1.Container{{Args: []string{test.flag}}}
			fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(deployment)
			require.NoError(t, err)
			a := healthy(t)
			a.own[v1alpha1.PolicyRepositories.Resource] = fact[[]*ownObject]{value: []*ownObject{{}}}
			a.sync.value, a.syncLease = &unstructured.Unstructured{Object: fields}, test.lease
			requireResult(t, checkSync(a), test.status, test.message, test.remedy)
		})
	}
}
