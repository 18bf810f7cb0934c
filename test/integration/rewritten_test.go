package integration_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin"
	"nstpl.dev/nstpl/test/marks"
)

// Mutating admission that changes a declared field while an object is stored is found by diff --verify. Admission that
// only adds fields is not a difference, and neither is another way to write a value.
func TestVerifyFindsWhatAdmissionChanges(t *testing.T) {
	marks.Since(t, "1.36")
	t.Parallel()
	s := newScope(t, sharedCluster)
	const declared = "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: p, labels: {a: b}}\n" +
		"spec: {podSelector: {}, ingress: [{ports: [{port: 80}]}, {ports: [{port: 443}]}]}\n"
	// mutated creates a namespace in which the API server mutates NetworkPolicies.
	mutated := func(name, mutation string) *corev1.Namespace {
		ns := s.createNamespace(name, withLabel("mutated.example.com/by", s.name(name)))
		s.applyYAML(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {mutated.example.com/by: %[1]s}}
    resourceRules:
    - {apiGroups: [networking.k8s.io], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [networkpolicies]}
  failurePolicy: Fail
  reinvocationPolicy: Never
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: "[%[2]s]"}}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, s.name(name), mutation))
		t.Cleanup(func() {
			_, err := s.kubectl(context.WithoutCancel(t.Context()), "", "delete",
				"mutatingadmissionpolicies,mutatingadmissionpolicybindings", s.name(name))
			assert.NoError(t, err)
		})
		s.eventually(func(c *assert.CollectT) {
			out, err := s.kubectl(t.Context(), declared, "create", "--namespace", ns.Name, "--dry-run=server", "-o", "yaml",
				"--filename", "-")
			assert.NoError(c, err)
			assert.True(c, strings.Contains(out, "team: a") || !strings.Contains(out, "443"), out)
		})
		return ns
	}
	removes := mutated("removes", "JSONPatch{op: 'remove', path: '/spec/ingress/1'}")
	adds := mutated("adds", "JSONPatch{op: 'add', path: '/metadata/labels/team', value: 'a'}")
	s.createTemplate("defaults", documents(declared, podQuota("q")), func(template *v1alpha1.NamespaceTemplate) {
		// Otherwise the rollout may stop at the first namespace, which is never populated, before it reaches the other.
		template.Spec.Rollout = &v1alpha1.Rollout{MaxUnavailable: new(intstr.FromString("100%"))}
	})
	s.waitNotPopulated(removes, "networkpolicy.networking.k8s.io/p of template "+s.name("defaults")+
		": is not stored as it is declared: spec.ingress")
	s.waitPopulated(adds)
	out, code := verify(s, removes)
	require.Equal(t, 1, code, out)
	require.Contains(t, out, "is not stored as it is declared: spec.ingress: mutating admission changes it")
	out, code = verify(s, adds)
	require.Zero(t, code, out)
}

// verify runs kubectl nstpl diff --verify, and returns its output and its exit code.
func verify(s *testScope, ns *corev1.Namespace) (output string, code int) {
	return runPlugin(s, "diff", ns.Name, "--verify")
}

// runPlugin runs kubectl nstpl, and returns its output and its exit code.
func runPlugin(s *testScope, args ...string) (output string, code int) {
	var out, errOut bytes.Buffer
	code = plugin.Run(s.t.Context(),
		slices.Concat([]string{"kubectl-nstpl"}, args, []string{"--kubeconfig", s.controlPlane.Kubeconfig}),
		genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut})
	return out.String() + errOut.String(), code
}
