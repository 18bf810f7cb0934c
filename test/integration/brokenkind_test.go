package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// A kind whose conversion webhook is unreachable cannot be listed, although its objects exist.
func TestUnlistableKindAffectsOnlyItsTemplates(t *testing.T) {
	t.Parallel()
	s := newScope(t, newTestCluster(t))
	_, err := s.kubectl(t.Context(), widgetDefinition, "apply", "--filename", "-")
	require.NoError(t, err)
	const widget = "{apiVersion: example.com/v1, kind: Widget, metadata: {name: w}, spec: {size: 1}}"
	healthy := s.createTemplate("healthy", configMap("settings", "v"), withSelectorLabel("healthy"))
	broken := s.createTemplate("broken", widget, withSelectorLabel("broken"), deletesObjects)
	held := s.createPopulatedNamespace("held", withLabel("of", "broken"))
	s.waitPresent(held, widget)

	s.patchWidgetDefinition(`{"spec": {
		"versions": [
			{"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
			{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}],
		"conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"}}}}}`)
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

	s.patchWidgetDefinition(`{"spec": {"conversion": {"strategy": "None", "webhook": null}}}`)
	s.waitDeleted(broken)
	s.waitAbsent(held, widget)
}

// withSelectorLabel has a template select only namespaces with a value of the label "of".
func withSelectorLabel(value string) func(*v1alpha1.NamespaceTemplate) {
	return func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces.LabelSelector.MatchLabels["of"] = value
	}
}

// patchWidgetDefinition changes the CustomResourceDefinition of Widget.example.com.
func (s *testScope) patchWidgetDefinition(patch string) {
	s.t.Helper()
	_, err := s.kubectl(s.t.Context(), "", "patch", "crd", "widgets.example.com", "--type", "merge", "--patch", patch)
	require.NoError(s.t, err)
}
