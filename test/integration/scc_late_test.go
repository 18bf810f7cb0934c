package integration_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// createPrivilegedFor creates a constraint that admits privileged pods of a user, and waits until it is in force.
func (s constraintFixture) createPrivilegedFor(user string) *v1alpha1.SecurityContextConstraints {
	s.t.Helper()
	constraint := &v1alpha1.SecurityContextConstraints{
		ObjectMeta: metav1.ObjectMeta{Name: "privileged"}, AllowPrivilegedContainer: true, Users: []string{user},
		RunAsUser:      v1alpha1.RunAsUserStrategyOptions{Type: v1alpha1.RunAsAny},
		SELinuxContext: v1alpha1.SELinuxContextStrategyOptions{Type: v1alpha1.RunAsAny},
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), constraint))
	s.waitConstraint(constraint, metav1.ConditionTrue)
	return constraint
}

// waitConstraint waits until the condition Ready of a constraint's generation has a status.
func (s constraintFixture) waitConstraint(
	constraint *v1alpha1.SecurityContextConstraints, status metav1.ConditionStatus,
) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(constraint), constraint))
		ready := apimeta.FindStatusCondition(constraint.Status.Conditions, v1alpha1.ConditionReady)
		if assert.NotNil(c, ready) {
			assert.Equal(c, status, ready.Status)
			assert.Equal(c, constraint.Generation, ready.ObservedGeneration)
		}
	})
}

// privilegedRequests returns requests for which a user needs a constraint that admits privileged pods, such as those
// about a pod that the user may have created earlier.
func privilegedRequests(s *testScope, user string, pod *corev1.Pod) map[string]func() error {
	who, clients := s.newPodAdmin(user)
	s.grant(s.name(user+"-enters"), userSubject(user), policyRule("create get", "", "pods/exec pods/attach"))
	enter := func(verb string) func() error {
		return func() error {
			err := clients.CoreV1().RESTClient().Post().Namespace(pod.Namespace).Resource("pods").Name(pod.Name).
				SubResource(verb).VersionedParams(&corev1.PodExecOptions{Command: []string{"sh"}, Stdout: true},
				clientgoscheme.ParameterCodec).Do(s.t.Context()).Error()
			if err != nil && strings.Contains(err.Error(), "does not have a host assigned") {
				return nil // no node runs the pod
			}
			return err
		}
	}
	return map[string]func() error{
		"create": func() error {
			return who.Create(s.t.Context(), newPod(pod.Namespace, "another", makesPrivileged), client.DryRunAll)
		},
		"debug": func() error {
			debugged := &corev1.Pod{}
			if err := s.client.Get(s.t.Context(), client.ObjectKeyFromObject(pod), debugged); err != nil {
				return err
			}
			debugged.Spec.EphemeralContainers = []corev1.EphemeralContainer{{
				EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug", Image: "d"},
			}}
			options := &client.SubResourceUpdateOptions{}
			options.DryRun = []string{metav1.DryRunAll}
			return who.SubResource("ephemeralcontainers").Update(s.t.Context(), debugged, options)
		},
		"exec": enter("exec"), "attach": enter("attach"),
	}
}

// A replica whose watch of constraints is late allows nothing that a changed constraint does not allow any more, and
// all that it allows now, once the constraint is in force.
func TestALateReplicaKnowsTheConstraints(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s, replicas := newLateReplica(t)
	ns := s.createNamespace("a").Name
	constraint := s.createPrivilegedFor("alice")
	pod := newPod(ns, "a", makesPrivileged)
	alice, _ := s.newPodAdmin("alice")
	replicas.useLate()
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, alice.Create(t.Context(), pod.DeepCopy())) })
	ofAlice, ofCarol := privilegedRequests(s, "alice", pod), privilegedRequests(s, "carol", pod)
	for name := range ofAlice {
		s.eventually(func(c *assert.CollectT) { assert.NoError(c, ofAlice[name](), name) })
	}

	replicas.useFirst()
	replicas.watches.holdWatches(t, "/securitycontextconstraints")
	require.NoError(t, s.client.Patch(t.Context(), constraint, mergePatch(`{"users": ["carol"]}`)))
	s.waitConstraint(constraint, metav1.ConditionTrue)
	replicas.useLate()
	for _, name := range []string{"create", "debug"} { // the API server may use the mutating webhook a moment later
		s.eventually(func(c *assert.CollectT) { assert.NoError(c, ofCarol[name](), name) })
	}
	for name := range ofAlice {
		require.ErrorContains(t, ofAlice[name](), "no SecurityContextConstraints admit it", name)
		require.NoError(t, ofCarol[name](), name)
	}
	replicas.watches.releaseWatches()
}

// While the webhook for constraints is missing, no constraint is reported as in force.
func TestConstraintsAreNotInForceWithoutTheirWebhook(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	through := restartBehindProxy(t, s.testCluster)
	constraint := s.createPrivilegedFor("alice")
	_, release := through.holdWrites("/validatingwebhookconfigurations/" + v1alpha1.ConstraintWebhookName)
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.ConstraintWebhookName},
	}
	require.NoError(t, s.client.Patch(t.Context(), configuration, mergePatch(`{"webhooks": null}`)))
	s.waitConstraint(constraint, metav1.ConditionFalse)
	release()
	s.waitConstraint(constraint, metav1.ConditionTrue)
}

// A policy of others that denies the operator's probes does not keep a constraint without a status.
func TestAConstraintWhoseWebhookCannotBeProbedIsUnknown(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newSCCScope(t)
	const denyProbes = "deny-probes"
	s.applyYAML(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: ` + denyProbes + `}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [coordination.k8s.io], apiVersions: [v1], operations: [CREATE], resources: [leases]}]
  validations: [{expression: "!request.?dryRun.orValue(false)", message: no trials}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: ` + denyProbes + `}
spec: {policyName: ` + denyProbes + `, validationActions: [Deny]}
`)
	s.eventually(func(c *assert.CollectT) {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: metav1.NamespaceDefault}}
		assert.ErrorContains(c, s.client.Create(t.Context(), lease, client.DryRunAll), "no trials")
	})
	constraint := &v1alpha1.SecurityContextConstraints{
		ObjectMeta:     metav1.ObjectMeta{Name: "unknown"},
		RunAsUser:      v1alpha1.RunAsUserStrategyOptions{Type: v1alpha1.RunAsAny},
		SELinuxContext: v1alpha1.SELinuxContextStrategyOptions{Type: v1alpha1.RunAsAny},
	}
	require.NoError(t, s.client.Create(t.Context(), constraint))
	s.waitConstraint(constraint, metav1.ConditionFalse)
	ready := apimeta.FindStatusCondition(constraint.Status.Conditions, v1alpha1.ConditionReady)
	require.Contains(t, ready.Message, "the API server perhaps does not send pods by this generation to the operator")
	require.Contains(t, ready.Message, "no trials")
	require.NoError(t, s.client.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: denyProbes},
	}))
	require.NoError(t, s.client.Delete(t.Context(), &admissionregistrationv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: denyProbes},
	}))
	s.waitConstraint(constraint, metav1.ConditionTrue)
}
