package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// A user who may change a source has it written into every selected namespace.
func TestSourcesAreLimited(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	vault := newSources(s)
	large := strings.Repeat("x", 80<<10)
	s.createObjects(vault.Name, configMap("ca", large))
	letOperatorGet(s, vault, "configmaps", "ca")
	source := sourceOf("ConfigMap", vault, "ca")
	template := s.createTemplate("copies", configMap("other", "v"), copies(source))
	ns := s.createNamespace("a")
	s.waitNotPopulated(ns, "bytes, and spec.sources allows 65536: make it smaller, or set maxSize")

	err := s.client.Patch(t.Context(), template.DeepCopy(), mergePatch(fmt.Sprintf(
		`{"spec": {"sources": [{"apiVersion": "v1", "kind": "ConfigMap", "namespace": %q, "name": "ca", "maxSize": "2Mi"}]}}`,
		vault.Name)))
	require.ErrorContains(t, err, "must be a quantity of at most 1Mi")
	source.MaxSize = new(resource.MustParse("128Ki"))
	s.updateTemplate(template, copies(source))
	s.waitPresent(ns, configMap("ca", large))
	s.waitPopulated(ns)

	// Of many changes in a row, few are copied, and the last one is.
	const changes = 20
	for i := range changes {
		setSourceValue(s, vault, configMap("ca", fmt.Sprint(i, large)))
	}
	s.waitPresent(ns, configMap("ca", fmt.Sprint(changes-1, large)))
	assert.Less(t, s.countWrites(ns)["patch configmaps"], changes/2)

	// A source that becomes too large changes no copy.
	setSourceValue(s, vault, configMap("ca", large+large))
	s.waitNotPopulated(ns, "allows 131072")
	s.waitPresent(ns, configMap("ca", fmt.Sprint(changes-1, large)))
	setSourceValue(s, vault, configMap("ca", "small"))
	s.waitPresent(ns, configMap("ca", "small"))
	s.waitPopulated(ns)
}

// Users who change a source, or delete it and create it again, have its copies in all namespaces written together only
// as fast as etcd bears. The template says what waits, and what is taken away does not wait.
func TestCopiesInAllNamespacesAreLimited(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	vault := newSources(s)
	content := func(name, value string) string { return configMap(name, value+strings.Repeat("x", 100<<10)) }
	s.createObjects(vault.Name, content("ca", "first"))
	letOperatorGet(s, vault, "configmaps", "ca")
	var all []v1alpha1.Source
	for i := range 16 {
		source := sourceOf("ConfigMap", vault, "ca")
		source.As, source.MaxSize = fmt.Sprint("ca-", i), new(resource.MustParse("128Ki"))
		all = append(all, source)
	}
	shareSources(s, vault, 15)
	template := s.createTemplate("copies", "", deletesObjects, copies(all...))
	var namespaces []*corev1.Namespace
	for i := range 4 {
		namespaces = append(namespaces, s.createPopulatedNamespace(fmt.Sprint("n", i)))
	}
	waitCopies := func(value string) {
		t.Helper()
		for _, ns := range namespaces {
			s.waitPresent(ns, content("ca-0", value))
		}
	}
	setSourceValue(s, vault, content("ca", "second"))
	waitCopies("second")

	// The next change waits for the time in which 64 copies of 102 KiB are written with a 16th of the rate: a
	// minute and a half.
	setSourceValue(s, vault, content("ca", "third"))
	source := "the source configmap/ca in namespace " + vault.Name
	isToWait := "changes of " + source + " wait until "
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		populated := templateCondition(status, v1alpha1.TemplatePopulated)
		assert.Equal(c, metav1.ConditionTrue, populated.Status)
		assert.Contains(c, populated.Message, isToWait)
	})
	waitCopies("second")

	s.deleteIn(vault, content("ca", ""))
	for _, ns := range namespaces {
		s.waitAbsent(ns, configMap("ca-0", ""))
		s.waitNotPopulated(ns, source+" does not exist")
	}
	s.createObjects(vault.Name, content("ca", "second"))
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		populated := templateCondition(status, v1alpha1.TemplatePopulated)
		assert.Contains(c, populated.Message, isToWait)
	})
	for _, ns := range namespaces {
		s.waitNotPopulated(ns, source+" was lost, and is copied again at ")
		writes := s.countWrites(ns)
		require.LessOrEqual(t, writes["create configmaps"]+writes["patch configmaps"], 2*len(all), writes)
	}
}

// shareSources changes a number of other sources, which then share the rate at which copies are written.
func shareSources(s *testScope, vault *corev1.Namespace, number int) {
	s.t.Helper()
	var names, before, after []string
	var others []v1alpha1.Source
	for i := range number {
		name := fmt.Sprint("other-", i)
		names, others = append(names, name), append(others, sourceOf("ConfigMap", vault, name))
		before, after = append(before, configMap(name, "first")), append(after, configMap(name, "second"))
	}
	s.createObjects(vault.Name, documents(before...))
	letOperatorGet(s, vault, "configmaps", names...)
	s.createTemplate("others", "", copies(others...), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces = selectLabel(testLabel, s.name("others"))
	})
	ns := s.createPopulatedNamespace("shares", func(ns *corev1.Namespace) {
		ns.Labels = map[string]string{testLabel: s.name("others")}
	})
	setSourceValue(s, vault, documents(after...))
	s.waitPresent(ns, documents(after...))
}
