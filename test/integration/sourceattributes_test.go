package integration_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// cronJob returns a suspended CronJob whose pods have a label.
func cronJob(name, key, value string) string {
	return fmt.Sprintf(`
apiVersion: batch/v1
kind: CronJob
metadata: {name: %s}
spec:
  schedule: "@yearly"
  suspend: true
  jobTemplate:
    spec:
      template:
        metadata: {labels: {app: tool, %s: %s}}
        spec:
          restartPolicy: Never
          containers: [{name: main, image: example.com/tool}]
`, name, key, value)
}

// Protected attributes inside of sources, such as in pod templates, reach no namespace: neither those that a source has
// when a rule or a template is created, nor those that a user with the role adds later.
func TestProtectedAttributesOfSourcesAreNotCopied(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	zone := s.name("zone")
	s.createObjects(vault.Name, documents(cronJob("before", zone, "internal"), cronJob("clean", "other", "x")))
	letOperatorGet(s, vault, "cronjobs.batch", "before", "clean", "later")
	source := func(name string) v1alpha1.Source {
		return v1alpha1.Source{APIVersion: "batch/v1", Kind: "CronJob", Namespace: vault.Name, Name: name}
	}
	s.createTemplate("before", "", copies(source("before")))
	s.createTemplate("clean", "", copies(source("clean"), source("later")), ignoresFailures)
	ns := s.createPopulatedNamespace("n")
	s.waitPresent(ns, documents(cronJob("before", zone, "internal"), cronJob("clean", "other", "x")))

	// The rule is younger than the copy, which stays.
	role := s.createAttributeRole("", "setter")
	s.protectAttribute("", "zone", s.attributeRule(v1alpha1.LabelAttribute, "zone", v1alpha1.ClusterRoleKind, role))
	message := func(name string) string {
		return "the source cronjob.batch/" + name + " in namespace " + vault.Name + " cannot be copied: it has the label " +
			zone + " in spec.jobTemplate.spec.template, which ClusterProtectedAttribute " + zone + " protects: remove it there"
	}
	s.waitNotPopulated(ns, message("before"))
	s.waitPresent(ns, cronJob("before", zone, "internal"))
	young := s.createNamespace("young")
	s.waitNotPopulated(young, message("before"))
	s.waitAbsent(young, cronJob("before", "x", ""))
	s.waitPresent(young, cronJob("clean", "other", "x"))

	// A new template is denied, to every author.
	writes := policyRule("create patch", "batch", "cronjobs")
	author := s.newTemplateAuthor("author", writes)
	letGet(s, vault, userSubject(s.name("author")), "cronjobs.batch", "before", "clean", "later")
	template := s.newTemplate("another", "", copies(source("before")))
	template.Spec.Sources[0].As = "another"
	expectForbidden(t, author.Create(t.Context(), template.DeepCopy()), message("before"))
	expectForbidden(t, s.client.Create(t.Context(), template.DeepCopy()), message("before"))

	// A user with the role may change sources, but not what is copied from them.
	s.bindRole("", v1alpha1.ClusterRoleKind, role, userSubject(administrator))
	changed := s.mustGet(vault, parseYAML(t, cronJob("clean", "x", ""))[0])
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, setPodLabel(t.Context(), s.client, changed, zone, "internal"))
	})
	s.createObjects(vault.Name, cronJob("later", zone, "internal"))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		// The message has no room for the whole of three findings.
		for _, name := range []string{"before", "clean", "later"} {
			assert.Contains(c, condition.Message, "the source cronjob.batch/"+name+" in namespace "+vault.Name+" cannot")
		}
	})
	s.waitPresent(ns, cronJob("clean", "other", "x"))
	copied := s.mustGet(ns, changed)
	labels, _, err := unstructured.NestedMap(copied.Object, "spec", "jobTemplate", "spec", "template", "metadata", "labels")
	require.NoError(t, err)
	require.NotContains(t, labels, zone)
	s.waitAbsent(ns, cronJob("later", "x", ""))

	// Without the label, and without the rule, they are copied.
	require.NoError(t, setPodLabel(t.Context(), s.client, changed, zone, nil))
	require.NoError(t, setPodLabel(t.Context(), s.client, s.mustGet(vault, parseYAML(t, cronJob("later", "x", ""))[0]), zone, nil))
	s.waitPresent(ns, cronJob("later", "app", "tool"))
	rule := &v1alpha1.ClusterProtectedAttribute{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: zone}, rule))
	require.NoError(t, s.client.Delete(t.Context(), rule))
	for _, populated := range []*corev1.Namespace{ns, young} {
		s.waitPopulated(populated)
		s.waitPresent(populated, cronJob("before", zone, "internal"))
	}
}

// setPodLabel sets a label of the pods of a CronJob, or removes it if the value is nil.
func setPodLabel(ctx context.Context, as client.Client, object *unstructured.Unstructured, key string, value any) error {
	text := "null"
	if value != nil {
		text = fmt.Sprintf("%q", value)
	}
	return as.Patch(ctx, object.DeepCopy(), mergePatch(fmt.Sprintf(
		`{"spec": {"jobTemplate": {"spec": {"template": {"metadata": {"labels": {%q: %s}}}}}}}`, key, text)))
}
