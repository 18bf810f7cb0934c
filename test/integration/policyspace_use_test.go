package integration_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/test/marks"
)

// ofTree returns an object with the label of a tree.
func ofTree[T client.Object](object T) T {
	labels := object.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.TreeLabel] = "some-tree"
	object.SetLabels(labels)
	return object
}

func TestPolicySpaceInUseCannotBeDeleted(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	root := s.createSpace("root", "")
	team := s.createSpace("team", "root")
	empty := s.createSpace("empty", "root")
	tree := ofTree(s.newSpace("of-tree", ""))
	require.NoError(t, s.client.Create(t.Context(), tree))
	namespaces := map[string]*corev1.Namespace{}
	for _, short := range []string{"d", "c", "b", "a"} {
		namespaces[short] = s.createNamespace(short, s.inSpace("team"))
	}
	s.createNamespace("e", s.inSpace("of-tree"))
	program := s.newProgram()

	t.Run("by an administrator", func(t *testing.T) {
		err := s.client.Delete(t.Context(), team)
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		for _, space := range []*v1alpha1.PolicySpace{team, root} {
			require.ErrorContains(t, s.client.Delete(t.Context(), space), fmt.Sprintf(
				"policyspace %q is in use (namespaces in and below it: 4): first delete them, or move them to another "+
					"policyspace by the label policy.nstpl.dev/policyspace", space.Name))
		}
		require.ErrorContains(t, s.client.Delete(t.Context(), team, client.DryRunAll), "is in use")
	})

	t.Run("by the deletion of several", func(t *testing.T) {
		err := s.client.DeleteAllOf(t.Context(), &v1alpha1.PolicySpace{},
			client.MatchingFields{"metadata.name": team.Name})
		require.ErrorContains(t, err, "is in use")
	})

	t.Run("by a ServiceAccount, unless it belongs to a tree", func(t *testing.T) {
		require.ErrorContains(t, program.Delete(t.Context(), team), "is in use")
		require.ErrorContains(t, s.client.Delete(t.Context(), tree), "is in use")
		require.NoError(t, program.Delete(t.Context(), tree))
	})

	t.Run("but it can once its namespaces have moved away or are deleted", func(t *testing.T) {
		s := s.withT(t)
		s.moveNamespace(namespaces["a"].Name, "empty")
		s.patchNamespace(namespaces["b"], `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": null}}}`)
		s.delete(namespaces["c"]) // without a controller manager, it is Terminating from now on
		require.ErrorContains(t, s.client.Delete(t.Context(), team), "namespaces in and below it: 1")
		s.delete(namespaces["d"])
		s.delete(team)
		require.ErrorContains(t, s.client.Delete(t.Context(), empty), "is in use")
		s.patchNamespace(namespaces["a"], `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": null}}}`)
	})

	t.Run("and child policyspaces without namespaces do not keep it", func(t *testing.T) {
		s := s.withT(t)
		s.delete(root)
		s.delete(empty)
	})
}

func TestLabelOfAPolicySpaceThatDoesNotExistIsDenied(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("prod", "")
	s.createSpace("other", "")
	missing := fmt.Sprintf("policyspace %q not found", s.name("pord"))
	suggestion := fmt.Sprintf("%s: did you mean %q?", missing, s.name("prod"))
	ns := s.createNamespace("n", s.inSpace("prod"))
	label := func(space string) client.Patch {
		return mergePatch(fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, space))
	}

	t.Run("with the name of a similar one", func(t *testing.T) {
		err := s.client.Create(t.Context(), s.newNamespace("m", s.inSpace("pord")))
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		require.ErrorContains(t, err, suggestion)
		require.ErrorContains(t, s.client.Create(t.Context(), s.newNamespace("m", s.inSpace("pord")), client.DryRunAll),
			suggestion)
		require.ErrorContains(t, s.client.Patch(t.Context(), ns.DeepCopy(), label(s.name("pord"))), suggestion)
		require.ErrorContains(t, s.client.Patch(t.Context(), ns.DeepCopy(), label("0-like-none")),
			`policyspace "0-like-none" not found: create it first`)
		require.ErrorContains(t, s.client.Create(t.Context(), s.newSpace("child", "pord")), suggestion)
		require.ErrorContains(t, s.client.Patch(t.Context(), s.newSpace("other", ""),
			mergePatch(`{"spec": {"parent": "`+s.name("pord")+`"}}`)), suggestion)
	})

	t.Run("but not that of one that the user may neither use nor get", func(t *testing.T) {
		s := s.withT(t)
		jane := s.newUser(s.name("jane"))
		s.grant(s.name("use-pord"), userSubject(jane.name), policyRule("use",
			v1alpha1.GroupVersion.Group, "policyspaces", s.name("pord")))
		try := func() error {
			_, err := jane.CoreV1().Namespaces().Create(t.Context(), s.newNamespace("m", s.inSpace("pord")),
				metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}
		s.eventually(func(c *assert.CollectT) {
			assert.ErrorContains(c, try(), missing+": create it first")
		})
		s.grant(s.name("get-prod"), userSubject(jane.name), policyRule("get",
			v1alpha1.GroupVersion.Group, "policyspaces", s.name("prod")))
		s.eventually(func(c *assert.CollectT) { assert.ErrorContains(c, try(), suggestion) })
	})

	t.Run("and a user who may not use it is denied by the permission first", func(t *testing.T) {
		s := s.withT(t)
		john := s.newUser(s.name("john"))
		for _, space := range []string{"pord", "prod"} {
			_, err := john.CoreV1().Namespaces().Create(t.Context(), s.newNamespace("m", s.inSpace(space)),
				metav1.CreateOptions{})
			require.ErrorContains(t, err, "may not put namespaces into policyspace "+s.name(space))
			require.NotContains(t, err.Error(), "not found")
		}
	})

	t.Run("unless a tree or a ServiceAccount applies objects in an order of its own", func(t *testing.T) {
		require.NoError(t, s.client.Create(t.Context(), ofTree(s.newNamespace("x", s.inSpace("later")))))
		require.NoError(t, s.client.Create(t.Context(), ofTree(s.newSpace("y", "later"))))
		program := s.newProgram()
		require.NoError(t, program.Create(t.Context(), s.newNamespace("z", s.inSpace("later"))))
		require.NoError(t, program.Create(t.Context(), s.newSpace("w", "later")))
	})

	t.Run("and a namespace that has such a label can be changed otherwise", func(t *testing.T) {
		s := s.withT(t)
		dangling := &corev1.Namespace{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: s.name("z")}, dangling))
		s.patchNamespace(dangling, `{"metadata": {"annotations": {"a": "b"}, "labels": {"c": "d"}}}`)
		orphan := s.newSpace("w", "")
		quota := mergePatch(`{"spec": {"quota": {"hard": {"pods": 1}}}}`)
		require.NoError(t, s.client.Patch(t.Context(), orphan, quota))
		s.patchNamespace(dangling, `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": null}}}`)
		s.delete(dangling)
	})
}

// While no operator answers, nothing is denied for a mistake: a namespace without its policyspace is held until the
// operator is back and the policyspace exists.
func TestPolicySpacesCanBeDeletedAndNamedWhileTheOperatorIsDown(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	space := s.createSpace("a", "")
	ns := s.createNamespace("n", s.inSpace("a"))
	s.waitInSpace(ns.Name, "a")
	require.ErrorContains(t, s.client.Delete(t.Context(), space), "is in use")
	require.NoError(t, s.operator.Kill())

	s.delete(space)
	s.patchNamespace(ns, `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": "`+s.name("b")+`"}}}`)
	young := s.createNamespace("young", s.inSpace("b"))
	require.NoError(t, s.startOperator(t.Context()))
	s.waitReason(young, "PolicySpaceNotFound")
	s.createSpace("b", "")
	s.waitInitialized(young)
	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, s.spaceDepths(c, ns.Name), "b")
		assert.Contains(c, s.spaceDepths(c, young.Name), "b")
	})
}

// If a namespace is created in a policyspace while that is deleted, then one of the two requests is denied, or the
// namespace is held, or was populated before: no user can write into it without the policies that it should inherit.
func TestNamespaceIsHeldOrPopulatedIfItsPolicySpaceIsDeletedMeanwhile(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	for i := range 10 {
		short := fmt.Sprint("space-", i)
		space := s.createSpace(short, "")
		ns := s.newNamespace(fmt.Sprint("n-", i), s.inSpace(short))
		var both sync.WaitGroup
		var created, deleted error
		both.Go(func() { created = s.client.Create(t.Context(), ns) })
		both.Go(func() { deleted = s.client.Delete(t.Context(), space) })
		both.Wait()
		switch {
		case created == nil && deleted == nil:
			s.waitReason(ns, "PolicySpaceNotFound")
			found := &corev1.Namespace{}
			require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
			if _, isPlaced := found.Labels[hierarchy.DepthLabel(space.Name)]; !isPlaced {
				require.Equal(t, "true", found.Labels[v1alpha1.InitializingLabel])
			}
		case created == nil:
			require.ErrorContains(t, deleted, "is in use")
			s.eventually(func(c *assert.CollectT) {
				found := &corev1.Namespace{}
				assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
				assert.Contains(c, found.Labels, hierarchy.DepthLabel(space.Name))
			})
		default:
			require.ErrorContains(t, created, "not found")
			require.NoError(t, deleted)
		}
	}
}
