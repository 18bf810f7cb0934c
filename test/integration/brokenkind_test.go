package integration_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// A kind whose conversion webhook is unreachable cannot be listed, although its objects exist.
func TestUnlistableKindAffectsOnlyItsTemplates(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.applyYAML(widgetDefinition)
	const widget = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 1}}"
	healthy := s.createTemplate("healthy", configMap("settings", "v"), withSelectorLabel("healthy"))
	broken := s.createTemplate("broken", widget, withSelectorLabel("broken"), deletesObjects)
	held := s.createPopulatedNamespace("held", withLabel("of", "broken"))
	s.waitPresent(held, widget)

	patchWidgetDefinition(s, convertedBy("127.0.0.1:1"))
	s.eventually(func(c *assert.CollectT) {
		_, err := s.kubectl(t.Context(), "", "get", "widgets.v2.example.com", "--all-namespaces")
		assert.ErrorContains(c, err, "conversion webhook")
	})
	s.restartOperator(t)
	s.createPopulatedNamespace("populated", withLabel("of", "healthy"))
	s.waitTemplateStatus(healthy, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 1, Updated: 1, Populated: 1}, status.Namespaces)
	})
	s.waitTemplateStatus(broken, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		accepted := apimeta.FindStatusCondition(status.Conditions, v1alpha1.TemplateAccepted)
		if assert.NotNil(c, accepted) {
			assert.Equal(c, "KindsUnavailable", accepted.Reason)
			assert.Contains(c, accepted.Message, "widgets.example.com")
		}
	})

	s.delete(broken)
	s.eventually(func(c *assert.CollectT) {
		assert.NotEmpty(c, s.operator.Log("the template is kept until its objects are known"))
	})
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(broken), broken))

	patchWidgetDefinition(s, `{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`)
	s.waitDeleted(broken)
	s.waitAbsent(held, widget)
}

// A kind whose conversion webhook accepts connections and does not answer delays only the templates that declare it.
// Before, a start waited until the list had timed out, which takes ten seconds.
func TestNamespacesDoNotWaitForAKindThatTheirTemplatesDoNotDeclare(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.applyYAML(widgetDefinition)
	const widget = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 1}}"
	s.createTemplate("healthy", configMap("settings", "v"), withSelectorLabel("healthy"))
	silent := s.createTemplate("silent", documents(widget, configMap("beside", "v")), withSelectorLabel("silent"))
	held := s.createPopulatedNamespace("held", withLabel("of", "silent"))
	s.waitPresent(held, widget)
	patchWidgetDefinition(s, convertedBy(silentServer(s)))

	s.restartOperator(t)
	s.createPopulatedNamespace("populated", withLabel("of", "healthy"))
	require.NotEmpty(t, s.operator.Log("the template's namespaces wait until its objects are known"))
	require.Empty(t, s.operator.Log("the template can't be populated as it is"), "the list has timed out before")
	s.delete(s.mustGet(held, parseYAML(t, configMap("beside", ""))[0]))
	s.waitTemplateStatus(silent, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		accepted := apimeta.FindStatusCondition(status.Conditions, v1alpha1.TemplateAccepted)
		if assert.NotNil(c, accepted) {
			assert.Equal(c, "KindsUnavailable", accepted.Reason)
		}
	})
	s.waitPresent(held, configMap("beside", "v"))

	patchWidgetDefinition(s, `{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`)
	s.waitTemplateStatus(silent, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 1, Updated: 1, Populated: 1}, status.Namespaces)
	})
}

// refusal returns a ValidatingAdmissionPolicy with its binding that refuse requests of the operator, with a message. In
// the condition, which is a CEL expression, NAME stands for the name.
func refusal(name, resourceRule, condition, message string) string {
	return strings.NewReplacer(
		"RULE", resourceRule, "CONDITION", strings.ReplaceAll(condition, "NAME", name), "MESSAGE", message,
		"NAME", name, "USER", operatorUser,
	).Replace(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: NAME}
spec:
  matchConstraints:
    resourceRules: [RULE]
  matchConditions: [{name: operator, expression: "request.userInfo.username == 'USER' && CONDITION"}]
  validations: [{expression: "false", message: "MESSAGE"}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: NAME}
spec: {policyName: NAME, validationActions: [Deny]}
`)
}

// A template that was changed, and whose status another one's admission refuses, stays in force as it was accepted before
// when the operator starts. It delays only its own new namespaces.
func TestATemplateThatCannotBeAcceptedDelaysNoOther(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	healthy := s.createTemplate("healthy", configMap("settings", "v"), withSelectorLabel("healthy"))
	stuck := s.createTemplate("stuck", readerRole("before", "configmaps"), withSelectorLabel("stuck"))
	s.createTemplate("authority", configMap("beside", "v"), withSelectorLabel("stuck"),
		authoritative(v1alpha1.AuthoritativeDelete))
	held := s.createPopulatedNamespace("held", withLabel("of", "stuck"))
	s.createPopulatedNamespace("other", withLabel("of", "healthy"))
	policy := refusal(stuck.Name,
		`{apiGroups: [policy.nstpl.dev], apiVersions: ["*"], operations: [UPDATE], resources: [namespacetemplates/status]}`,
		"object.metadata.name == 'NAME'", "this status is refused")
	s.applyYAML(policy)
	asOperator := s.impersonate(t, operatorUser).CoreV1().RESTClient()
	s.eventually(func(c *assert.CollectT) { // until the API server enforces it
		err := asOperator.Patch(types.MergePatchType).
			AbsPath("/apis/policy.nstpl.dev/v1alpha1/namespacetemplates", stuck.Name, "status").
			Param("dryRun", metav1.DryRunAll).Body([]byte(`{"status": {"observedGeneration": 9}}`)).Do(t.Context()).Error()
		assert.ErrorContains(c, err, "this status is refused")
	})
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(stuck), stuck))
	withObjects(t, readerRole("after", "configmaps"))(stuck)
	withSelectorLabel("later")(stuck)
	require.NoError(t, s.client.Update(t.Context(), stuck))
	s.restartOperator(t)

	s.createPopulatedNamespace("populated", withLabel("of", "healthy"))
	waiting := s.createNamespace("waiting", withLabel("of", "later"))
	s.updateTemplate(healthy, withObjects(t, configMap("settings", "changed")))
	s.waitTemplateStatus(healthy, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 2, Updated: 2, Populated: 2}, status.Namespaces)
		assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.ConditionReady))
	})
	// What the template declared before is in force: an authoritative one does not take it for undeclared.
	s.createObjects(held.Name, readerRole("undeclared", "configmaps"))
	s.waitAbsent(held, readerRole("undeclared", "configmaps"))
	s.waitPresent(held, readerRole("before", "configmaps"))
	s.delete(s.mustGet(held, parseYAML(t, readerRole("before", "configmaps"))[0]))
	s.waitPresent(held, readerRole("before", "configmaps"))

	s.deleteYAML(policy)
	s.waitPresent(waiting, readerRole("after", "configmaps"))
}

// A template whose revision cannot be stored says so, and delays the move of no namespace that it does not select.
func TestATemplateWhoseRevisionCannotBeStored(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	stuck := s.createTemplate("stuck", configMap("other", "v"), withSelectorLabel("stuck"))
	selected := s.createPopulatedNamespace("selected", withLabel("of", "stuck"))
	s.createSpace("a", "")
	s.createSpace("b", "")
	moving := s.createNamespaceInSpace("moving", "a")
	policy := refusal(stuck.Name,
		`{apiGroups: [apps], apiVersions: ["*"], operations: [CREATE], resources: [controllerrevisions]}`,
		"object.metadata.name.startsWith('NAME-')", "this revision is refused")
	s.applyYAML(policy)
	asOperator := s.impersonate(t, operatorUser).AppsV1().ControllerRevisions(v1alpha1.OperatorNamespace)
	s.eventually(func(c *assert.CollectT) { // until the API server enforces it
		_, err := asOperator.Create(t.Context(), &appsv1.ControllerRevision{
			ObjectMeta: metav1.ObjectMeta{Name: stuck.Name + "-probe"}, Data: runtime.RawExtension{Raw: []byte("{}")},
		}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		assert.ErrorContains(c, err, "this revision is refused")
	})
	s.patchTemplate(stuck, withObjects(t, configMap("other", "changed")))
	s.waitTemplateStatus(stuck, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		ready := templateCondition(status, v1alpha1.ConditionReady)
		assert.Equal(c, "RevisionNotStored", ready.Reason)
		assert.Contains(c, ready.Message, "the last change is not rolled out, because its revision cannot be stored: ")
		assert.Contains(c, ready.Message, "this revision is refused")
	})
	out, _ := runPlugin(s, "rollout", "status", stuck.Name, "--watch=false")
	require.Contains(t, out, "Waiting for template spec update to be observed: the last change is not rolled out, because ")
	out, _ = runPlugin(s, "why", "nstpl/"+stuck.Name)
	require.Contains(t, out, "was changed: the last change is not rolled out, because its revision cannot be stored: ")
	out, code := runPlugin(s, "diff", selected.Name)
	require.Zero(t, code, "the namespace has the revision before: %s", out)
	s.moveNamespace(moving, "b")
	s.waitInSpace(moving, "b")
	s.deleteYAML(policy)
	s.waitPresent(selected, configMap("other", "changed"))
	s.waitTemplateStatus(stuck, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, metav1.ConditionTrue, templateCondition(status, v1alpha1.ConditionReady).Status)
	})
}

// silentServer returns the address of a server that accepts connections until the test ends, and does not answer.
func silentServer(s *testScope) string {
	s.t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(s.t, err)
	s.t.Cleanup(func() { require.NoError(s.t, listener.Close()) })
	return listener.Addr().String() // the kernel accepts connections
}

// convertedBy returns a patch of the definition of Widget.example.com by which a webhook converts it.
func convertedBy(address string) string {
	const version = `"served": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}`
	return fmt.Sprintf(`{"spec": {
		"versions": [{"name": "v2", "storage": false, %s}, {"name": "v1", "storage": true, %s}],
		"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://%s/"}}}}}`,
		version, version, address)
}

// withSelectorLabel has a template select only namespaces with a value of the label "of".
func withSelectorLabel(value string) func(*v1alpha1.NamespaceTemplate) {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces.LabelSelector.MatchLabels["of"] = value
	}
}

// patchWidgetDefinition changes the CustomResourceDefinition of Widget.example.com.
func patchWidgetDefinition(s *testScope, patch string) {
	s.t.Helper()
	_, err := s.kubectl(s.t.Context(), "", "patch", "crd", "widgets.example.com", "--type", "merge", "--patch", patch)
	require.NoError(s.t, err)
}
