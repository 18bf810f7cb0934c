package integration_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// alter has a MutatingAdmissionPolicy change the objects of a resource in the namespaces of the scope, by JSON patches
// as CEL expressions. It returns a function that deletes the policy.
func (s *testScope) alter(name, group, resource, patches string) (remove func()) {
	s.t.Helper()
	text := fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    namespaceSelector: {matchLabels: {%[5]s: %[6]s}}
    resourceRules:
    - {apiGroups: [%[2]q], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [%[3]s]}
  mutations:
  - {patchType: JSONPatch, jsonPatch: {expression: %[4]q}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, s.name(name), group, resource, patches, testLabel, s.id)
	s.applyYAML(text)
	remove = func() { _, _ = s.kubectl(context.WithoutCancel(s.t.Context()), text, "delete", "--filename", "-") }
	s.t.Cleanup(remove)
	return remove
}

// A NetworkPolicy of which admission removes a rule is not in force, and its namespace is not populated. What admission
// only adds is not a finding. The object is applied again until it is stored as it is declared.
func TestWhatAdmissionAltersIsNotInForce(t *testing.T) {
	marks.Since(t, "1.36") // which has MutatingAdmissionPolicies
	t.Parallel()
	s := newScope(t, sharedCluster)
	probe := s.createNamespace("probe")
	policy := "\napiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: deny}\n" +
		"spec: {podSelector: {}, ingress: [{ports: [{port: 80}]}, {ports: [{port: 443}]}]}\n"
	mend := s.alter("policies", "networking.k8s.io", "networkpolicies",
		"[JSONPatch{op: 'remove', path: '/spec/ingress/1'}]")
	keep := s.alter("settings", "", "configmaps", "[JSONPatch{op: 'replace', path: '/data/key', value: 'altered'}]")
	s.alter("accounts", "", "serviceaccounts",
		"[JSONPatch{op: 'add', path: '/metadata/labels/added', value: 'yes'}]")
	s.eventually(func(c *assert.CollectT) { // until the API server knows the policies
		for _, object := range parseYAML(s.t, documents(policy, configMap("settings", "v"))) {
			object.SetNamespace(probe.Name)
			object.SetName("probe")
			if !assert.NoError(c, s.client.Create(t.Context(), object)) {
				return
			}
			text := fmt.Sprint(object.Object)
			assert.NoError(c, s.client.Delete(t.Context(), object))
			assert.NotContains(c, text, "443")
			assert.NotContains(c, text, "key:v")
		}
	})
	template := s.createTemplate("policies", documents(policy, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: robot}"))
	settings := s.createTemplate("settings", configMap("settings", "v"))
	ns := s.createNamespace("a")
	const altered = "is not stored as it is declared: "
	waitAltered := func() {
		s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
			assert.Equal(c, corev1.ConditionFalse, condition.Status)
			assert.Equal(c, "ObjectsFailed", condition.Reason)
			assert.Contains(c, condition.Message, "networkpolicy.networking.k8s.io/deny of template "+template.Name+": "+
				altered+"spec.ingress: ")
			assert.Contains(c, condition.Message, "configmap/settings: "+altered+"data.key: ")
			assert.NotContains(c, condition.Message, "robot")
		})
	}
	waitAltered()
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, int32(2), status.Namespaces.Failed)
	})
	s.waitTemplateStatus(settings, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, int32(2), status.Namespaces.Drifted)
	})
	s.waitEvent(ns, corev1.EventTypeWarning, "Altered", "spec.ingress")
	s.patchLabel(ns, "example.com/any", "change") // another plan, by the metadata of unchanged objects
	waitAltered()
	mend()
	keep()
	s.waitPopulated(ns)
	s.waitPresent(ns, documents(policy, configMap("settings", "v")))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.NotContains(c, condition.Message, altered)
	})
}

// Without its label, an object is not known as the operator's. That is not silent either.
func TestALabelThatAdmissionRemovesIsNamed(t *testing.T) {
	marks.Since(t, "1.36") // which has MutatingAdmissionPolicies
	t.Parallel()
	s := newScope(t, sharedCluster)
	const limits = "apiVersion: v1\nkind: LimitRange\nmetadata: {name: limits}\nspec: {limits: [{type: Pod, max: {cpu: 1}}]}\n"
	mend := s.alter("limits", "", "limitranges",
		"[JSONPatch{op: 'remove', path: '/metadata/labels/policy~1namespace-template-name'}]")
	probe := s.createNamespace("probe")
	s.eventually(func(c *assert.CollectT) { // until the API server knows the policy
		object := parseYAML(t, limits)[0]
		object.SetNamespace(probe.Name)
		object.SetLabels(map[string]string{v1alpha1.TemplateNameLabel: "any"})
		if assert.NoError(c, s.client.Create(t.Context(), object, client.DryRunAll)) {
			assert.NotContains(c, object.GetLabels(), v1alpha1.TemplateNameLabel)
		}
	})
	s.createTemplate("limits", limits)
	ns := s.createNamespace("a")
	s.waitNotPopulated(ns, "is not stored as it is declared: metadata.labels")
	mend()
	s.waitPopulated(ns)
	require.NotEmpty(t, s.mustGet(ns, parseYAML(t, limits)[0]).GetLabels()[v1alpha1.TemplateNameLabel])
}
