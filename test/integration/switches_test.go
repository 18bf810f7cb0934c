package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// A misspelled value must not look as if it had an effect.
func TestAnnotationsThatSwitchSomethingHaveKnownValues(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	annotated := func(key, value string) func(*v1alpha1.NamespaceTemplate) {
		return func(template *v1alpha1.NamespaceTemplate) { template.Annotations = map[string]string{key: value} }
	}
	for key, values := range map[string][]string{
		v1alpha1.RequirePermissionAnnotation: {"True", "yes", ""},
		v1alpha1.TemplateApplyAnnotation:     {"disabled", "false", ""},
	} {
		for _, value := range values {
			err := s.client.Create(t.Context(), s.newTemplate("a", configMap("a", "v"), annotated(key, value)))
			require.ErrorContains(t, err, "of the annotation "+key+" is invalid")
		}
	}
	template := s.createTemplate("b", configMap("b", "v"))
	for _, value := range []string{"TRUE", ""} {
		require.ErrorContains(t, s.client.Patch(t.Context(), template.DeepCopy(), mergePatch(
			`{"metadata": {"annotations": {"`+v1alpha1.RequirePermissionAnnotation+`": "`+value+`"}}}`)), "is invalid", value)
	}

	ns := s.createNamespace("a")
	for key, values := range map[string][]string{
		v1alpha1.AdoptAnnotation: {"True", "yes"}, v1alpha1.DeleteWhenExpiredAnnotation: {"True", "1"},
		v1alpha1.OptOutAnnotation: {"True", "yes!"}, v1alpha1.DeletionProtectionAnnotation: {"True"},
	} {
		for _, value := range values {
			annotate := func(ns *corev1.Namespace) { ns.Annotations = map[string]string{key: value} }
			err := s.client.Create(t.Context(), s.newNamespace("new", annotate))
			require.ErrorContains(t, err, key, "created with %s", value)
			change := mergePatch(`{"metadata": {"annotations": {"` + key + `": "` + value + `"}}}`)
			require.ErrorContains(t, s.client.Patch(t.Context(), ns.DeepCopy(), change), key, "changed to %s", value)
		}
	}
	s.patchNamespace(ns, `{"metadata": {"annotations": {"`+v1alpha1.OptOutAnnotation+`": "a.b-c, d"}}}`)
	s.patchNamespace(ns, `{"metadata": {"annotations": {"`+v1alpha1.OptOutAnnotation+`": null}}}`)
}

// A template that was stored before admission denied the value stays closed, and says so.
func TestAStoredTemplateWithAnInvalidValueRequiresPermission(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	template := s.createTemplate("a", configMap("a", "v"), s.selectsClass("class", "gold"))
	s.updateTemplateUnvetted(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Annotations = map[string]string{v1alpha1.RequirePermissionAnnotation: "True"}
	})
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Contains(c, templateCondition(status, v1alpha1.TemplateAccepted).Message, `the value "True" of the annotation`)
	})
	tenant := s.newUser(s.name("tenant"))
	s.eventually(func(c *assert.CollectT) {
		_, err := tenant.createNamespace("a", map[string]string{"class": "gold"}, nil)
		assert.ErrorContains(c, err, "may not use NamespaceTemplate "+template.Name)
	})
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) { // as it could be changed before
		template.Annotations["note"] = "x"
	})
}
