package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"

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
