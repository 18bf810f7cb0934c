package integration_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// What a replica allows whose watches are late stays: the objects of a template, which the operator may write, and a
// rule of a namespace beside one of the cluster.
func TestALateReplicaKnowsTheRulesOfTheCluster(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s, replicas := newLateReplica(t)
	ns := s.createNamespace("a")
	author := s.newTemplateAuthor("author", policyRule("create get patch", "", "configmaps"))
	owner := s.newTemplateAuthor("owner", policyRule("create get", v1alpha1.GroupVersion.Group, "protectedattributes"))
	role := s.createAttributeRole(ns.Name, "own")
	replicas.watches.holdWatches(t, "")
	s.protectAttribute("", "env", s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.ClusterRoleKind,
		s.createAttributeRole("", "setter"), "prod"))
	replicas.useLate()

	err := author.Create(t.Context(), s.newTemplate("labelled",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, labels: {"+s.name("env")+": prod}}\n"))
	require.ErrorContains(t, err, "may not set label "+s.name("env"))
	beside := &v1alpha1.ProtectedAttribute{
		AttributeRule: s.attributeRule(v1alpha1.LabelAttribute, "env", v1alpha1.RoleKind, role, "prod"),
	}
	beside.Name, beside.Namespace = s.name("beside"), ns.Name
	require.ErrorContains(t, owner.Create(t.Context(), beside, client.DryRunAll), "ClusterProtectedAttribute "+s.name("env"))
	replicas.watches.releaseWatches()
}
