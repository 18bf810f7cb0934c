package integration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
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
