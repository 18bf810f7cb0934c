package integration_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
)

// A namespace that a tree does not adopt stays outside of its policy spaces, but is counted in them. A quota that comes
// later counts it, too: otherwise the policy space would deny everything, since it waits for the count.
func TestLaterQuotasCountNamespacesThatAreNotAdopted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	ns := s.createNamespace("legacy")
	s.waitInitialized(ns)
	s.createSpace("old", "")
	s.moveNamespace(ns.Name, "old")
	s.waitInSpace(ns.Name, "old")

	tree := s.name("corp")
	for _, space := range []*v1alpha1.PolicySpace{s.newSpace("corp", ""), s.newSpace("team", "corp")} {
		space.Labels = map[string]string{v1alpha1.TreeLabel: tree}
		require.NoError(t, s.client.Create(t.Context(), space))
	}
	s.moveNamespace(ns.Name, "team")
	waitNotAdopted(s, ns, tree)

	corp := &v1alpha1.PolicySpace{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: tree}, corp))
	changed := corp.DeepCopy()
	changed.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: resourceList("pods", "5")}
	require.NoError(t, s.client.Patch(t.Context(), changed, client.MergeFrom(corp)))
	s.waitCounted(ns.Name)
	s.waitUsage("corp", "pods: 0/5")
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.Create(t.Context(), newPod(ns.Name, "a"), client.DryRunAll))
	})
}

// A tree replaces a hierarchy, as in a migration. A namespace that it does not adopt stays where it was, with the limits
// there: nothing waits for a move that does not happen.
func TestNamespacesThatAreNotAdoptedUseTheirQuotas(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{"same limits": "1", "other limits": "5"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			s.createSpace("old-root", "", "pods", "1")
			team := s.createSpace("team", "old-root")
			namespace := s.createNamespaceInSpace("legacy", "team")
			s.waitCounted(namespace)

			tree := s.name("corp")
			corp := s.newSpace("corp", "")
			corp.Labels = map[string]string{v1alpha1.TreeLabel: tree}
			corp.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: resourceList("pods", limit)}
			require.NoError(t, s.client.Create(t.Context(), corp))
			require.NoError(t, s.client.Patch(t.Context(), team, mergePatch(fmt.Sprintf(
				`{"metadata": {"labels": {%q: %q}}, "spec": {"parent": %q}}`, v1alpha1.TreeLabel, tree, corp.Name))))
			waitNotAdopted(s, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, tree)

			require.NoError(t, createInOrder(s, newPod(namespace, "a")))
			s.waitUsage("old-root", "pods: 1/1")
			s.waitUsage("corp", "pods: 1/"+limit)
			s.expectQuotaExceeded(s.client.Create(t.Context(), newPod(namespace, "b")), "old-root", "pods=2", "pods=1")
		})
	}
}

// A namespace whose label names a policy space of a tree that does not adopt it keeps all that it has in the policy space
// before. So it counts there: its owner may not create another one in its place.
func TestNamespacesThatAreNotAdoptedCountWhereTheyStay(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createLimitedSpace(s.newSpace("s", ""), func(space *v1alpha1.PolicySpace) {
		space.Spec.Quota = &v1alpha1.PolicySpaceQuota{Hard: resourceList(string(quota.Namespaces), "1")}
	})
	tree := s.newSpace("corp", "")
	tree.Labels = map[string]string{v1alpha1.TreeLabel: s.name("corp")}
	require.NoError(t, s.client.Create(t.Context(), tree))
	alice := s.newAllVerbsClient("alice")
	require.NoError(t, createNamespaceAs(s, alice, "a", "s"))
	s.waitInSpace(s.name("a"), "s")
	s.moveNamespace(s.name("a"), "corp")
	ns := &corev1.Namespace{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: s.name("a")}, ns))
	waitNotAdopted(s, ns, s.name("corp"))
	err := createNamespaceAs(s, alice, "b", "s")
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, "exceeded")
	s.waitSpaceStatus("s", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		used := status.Used[quota.Namespaces]
		assert.EqualValues(c, 1, used.Value())
	})
	// Once it has left, there is room.
	s.patchNamespace(ns, `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": null}}}`)
	s.eventually(func(c *assert.CollectT) { assert.NoError(c, createNamespaceAs(s, alice, "b", "s")) })
}

// A template of a tree deletes undeclared objects only in the namespaces of the tree. Its label counts from the moment
// it is set or removed.
func TestATemplateIsRemovedFromItsTree(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("roles", readerRole("declared", "configmaps"),
		authoritative(v1alpha1.AuthoritativeDelete), func(template *v1alpha1.NamespaceTemplate) {
			template.Labels = map[string]string{v1alpha1.TreeLabel: s.name("corp")}
		})
	ns := s.createPopulatedNamespace("a")
	s.createObjects(ns.Name, readerRole("undeclared", "configmaps"))
	s.waitEvent(ns, corev1.EventTypeWarning, "Undeclared",
		"role.rbac.authorization.k8s.io/undeclared: no template declares it")
	require.NoError(t, s.client.Patch(t.Context(), template,
		mergePatch(`{"metadata": {"labels": {"`+v1alpha1.TreeLabel+`": null}}}`)))
	s.waitAbsent(ns, readerRole("undeclared", "configmaps"))
}
