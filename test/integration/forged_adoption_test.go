package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Every user may write any annotation on an object without a template's label. So what such an object says about its
// adoption does not count.
func TestAForgedAnnotationKeepsNoRevokedGrant(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("grants", documents(grants, configMap("kept", "v")))
	ns := s.createPopulatedNamespace("a")
	for _, object := range parseYAML(t, grants) {
		object.SetAnnotations(map[string]string{v1alpha1.AdoptedAnnotation: "true"})
		s.replace(ns, object)
		s.eventually(func(c *assert.CollectT) {
			live, err := s.get(ns, object)
			if assert.NoError(c, err) {
				assert.Equal(c, template.Name, live.GetLabels()[v1alpha1.TemplateNameLabel])
				assert.NotEqual(c, "true", live.GetAnnotations()[v1alpha1.AdoptedAnnotation])
			}
		})
	}
	s.updateTemplate(template, withObjects(t, configMap("kept", "v")))
	s.waitAbsent(ns, grants)
}

// applyAsNstpl applies an object without a template's label in the operator's name, as every user may.
func (s *testScope) applyAsNstpl(user client.Client, ns *corev1.Namespace, object *unstructured.Unstructured) {
	s.t.Helper()
	object.SetNamespace(ns.Name)
	require.NoError(s.t, user.Apply(s.t.Context(), client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(v1alpha1.FieldManager)))
}

// An object without a template's label is not the operator's, also if the operator seems to have applied it.
func TestAForgedEntryKeepsNoRevokedGrant(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("grants", documents(grants, configMap("kept", "v")), func(t *v1alpha1.NamespaceTemplate) {
		t.Spec.DriftPolicy = v1alpha1.DriftReport
	})
	ns := s.createPopulatedNamespace("a")
	for _, object := range parseYAML(t, grants) {
		require.NoError(t, s.client.Delete(t.Context(), s.mustGet(ns, object)))
		object.SetAnnotations(map[string]string{v1alpha1.DeletionProtectionAnnotation: "true"})
		s.applyAsNstpl(s.client, ns, object)
	}
	s.updateTemplate(template, withObjects(t, configMap("kept", "v")))
	s.waitAbsent(ns, grants)
}

func TestAForgedEntryStopsNoRollout(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("a", configValue("one"))
	taken, free := s.createPopulatedNamespace("taken"), s.createPopulatedNamespace("free")
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.applyAsNstpl(s.client, taken,
		parseYAML(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: new}, immutable: true, data: {a: theirs}}")[0])
	s.updateTemplate(template, withObjects(t, documents(configValue("two"), configMap("new", "v"))))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.waitNotPopulated(taken, "configmap/new")
	s.waitPopulated(free)
}
