package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
)

// The verb use on a policy space suffices for templates that select by it and require permission, and for the labels by
// which they have overlays, while a namespace enters. A ClusterProtectedAttribute guards these labels then, too.
func TestAttributesGuardOverlaysBelowPolicySpaces(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "")
	tier := s.name("tier")
	s.createTemplate("guarded", configMap("a", "v"), requiresUse, s.selectsSpace("a"),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Overlays = []v1alpha1.Overlay{{Name: "gold", Namespaces: selectLabel(tier, "gold")}}
		})
	jane := s.newUser(s.name("jane"))
	jane.grant("use", "policyspaces", s.name("a"))
	move := func(space string) string { return labelPatch(v1alpha1.PolicySpaceLabel, space) }
	inSpace, gold := `"`+s.name("a")+`"`, labelPatch(tier, `"gold"`)
	ns := s.createNamespace("n")
	s.eventually(func(c *assert.CollectT) { // until the API server knows the permission
		assert.NoError(c, jane.patchesNamespace(ns.Name, move(inSpace)))
	})
	waitLabels(s, ns, hierarchy.DepthLabel(s.name("a")), "1")
	create := func() error {
		_, err := jane.CoreV1().Namespaces().Create(t.Context(),
			s.newNamespace("m", s.inSpace("a"), withLabel(tier, "gold")),
			metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	}
	require.ErrorContains(t, jane.patchesNamespace(ns.Name, gold), "(nstpl:template-use)")
	require.NoError(t, create(), "the verb use on the template is not needed to enter")

	protectValue(s, v1alpha1.LabelAttribute, "tier", "gold")
	expectForbidden(t, create(), "may not set label "+tier)
	require.NoError(t, jane.patchesNamespace(ns.Name, move("null")))
	waitLabels(s, ns, hierarchy.DepthLabel(s.name("a")), "")
	expectForbidden(t, jane.patchesNamespace(ns.Name, gold), "may not set label "+tier)
}
