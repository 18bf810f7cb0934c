package integration_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/test/marks"
)

func TestPolicySpaceTemplatesAreInherited(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("root", "")
	s.createSpace("a", "root")
	s.createSpace("b", "root")
	s.createTemplate("root", configMap("of-root", "v"), s.selectsSpace("root"))
	s.createTemplate("a", configMap("of-a", "v"), s.selectsSpace("a"))

	jane := s.newUser("jane")
	inB := s.createNamespace("in-b", s.inSpace("b"))
	inRoot := s.createNamespace("in-root", s.inSpace("root"))
	inNone := s.createNamespace("in-none")
	inA := s.createNamespace("in-a", s.inSpace("a"))

	t.Run("a write into a new namespace waits for the inherited objects", func(t *testing.T) {
		s := s.withT(t)
		_, err := jane.CoreV1().ConfigMaps(inA.Name).Create(t.Context(), newConfigMap("", "mine"),
			metav1.CreateOptions{})
		require.NoError(t, err)
		for _, name := range []string{"of-root", "of-a"} {
			s.mustGet(inA, parseYAML(t, configMap(name, "v"))[0])
		}
	})

	t.Run("namespaces have the templates of all policyspaces above", func(t *testing.T) {
		s := s.withT(t)
		s.waitPresent(inB, configMap("of-root", "v"))
		s.waitAbsent(inB, configMap("of-a", "v"))
		s.waitPresent(inRoot, configMap("of-root", "v"))
		s.eventually(func(c *assert.CollectT) {
			assert.Equal(c, map[string]string{"a": "1", "root": "2"}, s.spaceDepths(c, inA.Name))
			assert.Equal(c, map[string]string{"root": "1"}, s.spaceDepths(c, inRoot.Name))
			assert.Empty(c, s.spaceDepths(c, inNone.Name))
		})
		s.waitSpaceStatus("a", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
			assert.Equal(c, s.name("root")+"/"+s.name("a"), status.Path)
			assert.EqualValues(c, 1, status.Namespaces)
			assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.PolicySpaceReady))
		})
		s.waitSpaceStatus("root", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
			assert.EqualValues(c, 3, status.Namespaces)
		})
	})

	t.Run("changed depth labels are restored", func(t *testing.T) {
		s := s.withT(t)
		s.patchNamespace(inA,
			`{"metadata": {"labels": {"`+hierarchy.DepthLabel(s.name("root"))+`": null, "`+hierarchy.DepthLabel(
				s.name("b"))+`": "1"}}}`)
		s.eventually(func(c *assert.CollectT) {
			assert.Equal(c, map[string]string{"a": "1", "root": "2"}, s.spaceDepths(c, inA.Name))
		})
	})

	t.Run("a namespace that leaves loses the inherited objects", func(t *testing.T) {
		s := s.withT(t)
		s.patchNamespace(inB, `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": null}}}`)
		s.waitAbsent(inB, configMap("of-root", "v"))
		s.eventually(func(c *assert.CollectT) { assert.Empty(c, s.spaceDepths(c, inB.Name)) })
		s.waitSpaceStatus("root", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
			assert.EqualValues(c, 2, status.Namespaces)
		})
	})
}

// While a namespace or its policyspace moves, permissions that both the old and the new place grant are granted at
// every moment.
func TestPolicySpaceMovesKeepCommonGrants(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	for _, at := range [][2]string{{"root", ""}, {"a", "root"}, {"b", "root"}, {"team", "a"}} {
		s.createSpace(at[0], at[1])
	}
	s.createTemplate("a", viewerBinding("a.viewers"), s.selectsSpace("a"))
	s.createTemplate("b", viewerBinding("b.viewers"), s.selectsSpace("b"))
	ns := s.createPopulatedNamespace("n", s.inSpace("team"))
	s.waitPresent(ns, viewerBinding("a.viewers"))

	review := func() *authorizationv1.SubjectAccessReview {
		return &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: viewer,
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: ns.Name, Verb: "get", Resource: "configmaps",
			},
		}}
	}
	s.eventually(func(c *assert.CollectT) { // until the API server knows the binding
		first := review()
		assert.NoError(c, s.client.Create(t.Context(), first))
		assert.True(c, first.Status.Allowed)
	})
	var asked, denied atomic.Int64
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for ctx.Err() == nil {
			review := review()
			if s.client.Create(ctx, review) == nil {
				asked.Add(1)
				if !review.Status.Allowed {
					denied.Add(1)
				}
			}
		}
	}()
	moveTo := func(space, parent string) {
		t.Helper()
		body := `{"spec": {"parent": "` + s.name(parent) + `"}}`
		target := &v1alpha1.PolicySpace{ObjectMeta: metav1.ObjectMeta{Name: s.name(space)}}
		require.NoError(t,
			s.client.Patch(t.Context(), target, mergePatch(body)))
	}
	for range 5 {
		// The policyspace moves with its namespace.
		moveTo("team", "b")
		s.waitAbsent(ns, viewerBinding("a.viewers"))
		s.waitPresent(ns, viewerBinding("b.viewers"))
		moveTo("team", "a")
		s.waitAbsent(ns, viewerBinding("b.viewers"))
		s.waitPresent(ns, viewerBinding("a.viewers"))
		// The namespace moves alone.
		s.patchNamespace(ns, `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": "`+s.name("b")+`"}}}`)
		s.waitAbsent(ns, viewerBinding("a.viewers"))
		s.patchNamespace(ns, `{"metadata": {"labels": {"`+v1alpha1.PolicySpaceLabel+`": "`+s.name("team")+`"}}}`)
		s.waitAbsent(ns, viewerBinding("b.viewers"))
	}
	// The policyspace is replaced by another one with another template at once, like in a rename.
	s.createSpace("a-renamed", "root")
	require.NoError(t,
		s.client.Create(t.Context(),
			s.newTemplate("a-renamed", viewerBinding("a-renamed.viewers"), s.selectsSpace("a-renamed"))))
	moveTo("team", "a-renamed")
	s.waitPresent(ns, viewerBinding("a-renamed.viewers"))
	s.waitAbsent(ns, viewerBinding("a.viewers"))
	cancel()
	<-stopped
	require.Greater(t, asked.Load(), int64(100))
	require.Zero(t, denied.Load(), "of %d reviews", asked.Load())
	found := &corev1.Namespace{}
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
	require.Equal(t, ns.UID, found.UID)
}

// If the policyspace of a namespace does not exist, a new namespace waits, and an existing one keeps its objects.
func TestPolicySpaceThatIsMissingDelaysNewNamespaces(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	program := s.newProgram() // persons are denied
	ns := s.newNamespace("n", s.inSpace("late"))
	require.NoError(t, program.Create(t.Context(), ns))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Equal(c, "PolicySpaceNotFound", condition.Reason)
		assert.Contains(c, condition.Message, "policyspace "+s.name("late")+" does not exist: create it")
	})
	late := ofTree(s.newSpace("late", "above"))
	require.NoError(t, program.Create(t.Context(), late))
	s.waitSpaceStatus("late", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		ready := apimeta.FindStatusCondition(status.Conditions, v1alpha1.PolicySpaceReady)
		if assert.NotNil(c, ready) {
			assert.Contains(c, ready.Message, s.name("above")+", which does not exist")
		}
	})
	template := s.createTemplate("above", configMap("of-above", "v"), s.selectsSpace("above"), deletesObjects)
	above := ofTree(s.newSpace("above", ""))
	require.NoError(t, program.Create(t.Context(), above))
	s.waitPresent(ns, configMap("of-above", "v"))
	s.waitInitialized(ns)
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, map[string]string{"late": "1", "above": "2"}, s.spaceDepths(c, ns.Name))
	})
	require.NoError(t, program.Delete(t.Context(), above))
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, "PolicySpaceNotFound", condition.Reason)
	})
	s.waitPresent(ns, configMap("of-above", "v"))
	s.eventually(func(c *assert.CollectT) {
		assert.Equal(c, map[string]string{"late": "1", "above": "2"}, s.spaceDepths(c, ns.Name))
	})
	// Nor does the deletion of a template delete its objects there, and the template says why it remains.
	s.delete(template)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		ready := templateCondition(status, v1alpha1.ConditionReady)
		assert.Equal(c, "Misplaced", ready.Reason)
		assert.Contains(c, ready.Message, "the template remains until 1 object can be deleted; the place of the "+
			"namespace delays that, the first is configmap/of-above in namespace "+ns.Name+": policyspace "+
			s.name("late")+" is below policyspace "+s.name("above")+", which does not exist")
	})
	s.waitPresent(ns, configMap("of-above", "v"))
	require.NoError(t, program.Create(t.Context(), ofTree(s.newSpace("above", ""))))
	s.waitDeleted(template)
	s.waitAbsent(ns, configMap("of-above", "v"))
}

func TestInvalidPolicySpacesAreRejected(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "")
	s.createSpace("b", "a", "pods", "5")
	s.createSpace("c", "b")
	circle := s.newSpace("a", "c")
	err := s.client.Patch(t.Context(), circle,
		mergePatch(`{"spec": {"parent": "`+s.name("c")+`"}}`))
	require.ErrorContains(t, err, "policyspace "+s.name("a")+" is its own ancestor")
	require.ErrorContains(t, s.client.Create(t.Context(), s.newSpace("d", "d")), "can't be its own parent")
	require.ErrorContains(t, s.client.Create(t.Context(), s.newSpace("e.f", "")), "a DNS label")
	for resource, why := range map[string]string{"podz": "standard resource type", "pods": "must be an integer"} {
		err := s.client.Create(t.Context(), s.newSpace("g", "", resource, "1500m"))
		require.ErrorContains(t, err, "limits that no ResourceQuota can have")
		require.ErrorContains(t, err, why)
	}
	require.Error(t, s.client.Create(t.Context(), s.newSpace("g", "", "pods", "-1")))
	// A limit above an ancestor's limit is allowed with a warning.
	admin, warnings := s.newWarnedUser("admin-of-spaces", "system:masters")
	require.NoError(t, admin.Create(t.Context(), s.newSpace("h", "c", "pods", "6")))
	require.Equal(t,
		[]string{"policyspace " + s.name("h") + " limits pods to 6, but usage reaches the limit 5 of its ancestor " + s.name("b") +
			" first"}, warnings.drain())
}

// Only users with the verb use on a policyspace can put namespaces and policyspaces into it, or take them out.
func TestPolicySpaceRequiresUse(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "")
	s.createSpace("b", "")
	person := s.newUser(s.name("jane"))
	s.grant(s.name("spaces"), userSubject(person.name),
		policyRule("create patch", v1alpha1.GroupVersion.Group, "policyspaces"))
	ns := func(short, space string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: s.name(short), Labels: map[string]string{v1alpha1.PolicySpaceLabel: s.name(space)},
		}}
	}
	_, err := person.CoreV1().Namespaces().Create(t.Context(), ns("n", "a"), metav1.CreateOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err,
		"user "+person.name+" may not put namespaces into policyspace "+s.name(
			"a")+": ask for the verb use on policyspaces/"+s.name("a"))
	person.grant("use", "policyspaces", s.name("a"))
	s.eventually(func(c *assert.CollectT) {
		_, err := person.CoreV1().Namespaces().Create(t.Context(), ns("n", "a"), metav1.CreateOptions{})
		assert.NoError(c, client.IgnoreAlreadyExists(err))
	})
	person.grantUseOfAllTemplates() // so that no other policy denies changes of labels through subresources
	for _, subresource := range []string{"", "status"} {
		for _, to := range []string{`"` + s.name("b") + `"`, "null"} {
			patch := `{"metadata": {"labels": {"policy.nstpl.dev/policyspace": ` + to + `}}}`
			_, err := person.CoreV1().Namespaces().Patch(t.Context(), s.name("n"), "application/merge-patch+json",
				[]byte(patch), metav1.PatchOptions{DryRun: []string{"All"}}, subresource)
			if to == "null" {
				require.NoError(t, err, "a user who may use the policyspace may also take the namespace out")
			} else {
				require.ErrorContains(t, err, "or take them out of policyspace "+s.name("a"), "by %q", subresource)
			}
		}
		forged := `{"metadata": {"labels": {"` + hierarchy.DepthLabel(s.name("b")) + `": "1"}}}`
		_, err := person.CoreV1().Namespaces().Patch(t.Context(), s.name("n"), "application/merge-patch+json",
			[]byte(forged), metav1.PatchOptions{}, subresource)
		require.ErrorContains(t, err, "are managed by the operator", "by %q", subresource)
	}
	jane, err := s.newUserClient(person.name)
	require.NoError(t, err)
	s.eventually(func(c *assert.CollectT) {
		err := jane.Create(t.Context(), s.newSpace("below-b", "b"), client.DryRunAll)
		assert.ErrorContains(c, err, "user "+person.name+" may not put policyspaces into policyspace "+s.name("b"))
	})
	require.NoError(t, jane.Create(t.Context(), s.newSpace("below-a", "a")))
}

// In the existing namespaces of a policy space that becomes one of a tree, the operator would delete nothing any more. So
// only users who may change templates make it, or a namespace, one of a tree or of none.
func TestTheTreeOfAPolicySpaceIsGuarded(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	plain, tree := s.createSpace("plain", ""), ofTree(s.newSpace("of-tree", ""))
	require.NoError(t, s.client.Create(t.Context(), tree))
	person := s.newUser(s.name("jane"))
	s.grant(s.name("spaces"), userSubject(person.name),
		policyRule("create patch", v1alpha1.GroupVersion.Group, "policyspaces"))
	jane, err := s.newUserClient(person.name)
	require.NoError(t, err)
	label := func(value string) client.Patch {
		return mergePatch(fmt.Sprintf(`{"metadata": {"labels": {%q: %s}}}`, v1alpha1.TreeLabel, value))
	}
	s.eventually(func(c *assert.CollectT) { // until the API server knows the user's permissions
		assert.NoError(c, jane.Patch(t.Context(), plain.DeepCopy(), mergePatch(`{"metadata": {"labels": {"a": "b"}}}`)))
	})
	const denied = "may not change the label policy.nstpl.dev/tree of policyspace "
	expectForbidden(t, jane.Patch(t.Context(), plain.DeepCopy(), label(`"x"`)), denied+plain.Name)
	expectForbidden(t, jane.Patch(t.Context(), tree.DeepCopy(), label("null")), denied+tree.Name)
	expectForbidden(t, jane.Create(t.Context(), ofTree(s.newSpace("more", ""))), denied+s.name("more"))
	require.NoError(t, jane.Create(t.Context(), s.newSpace("more", "")))
	require.NoError(t, s.client.Patch(t.Context(), plain.DeepCopy(), label(`"x"`)), "an administrator")
	// A tree that adopts namespaces leaves those of other trees alone.
	ns := s.createNamespace("n")
	require.ErrorContains(t, person.patchesNamespace(ns.Name, labelPatch(v1alpha1.TreeLabel, `"x"`)),
		"(nstpl:managed-namespace)")
}

// A namespace of a policy space ends with its pods: a user with all rights in it does not take away the finalizer of the
// API server, after which the pods would run uncounted.
func TestNamespacesOfPolicySpacesEndWithTheirPods(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "")
	ns, free := s.createNamespace("n", s.inSpace("a")), s.createNamespace("free")
	config, err := s.controlPlane.UserConfig(s.name("owner"))
	require.NoError(t, err)
	owner, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	for _, in := range []*corev1.Namespace{ns, free} {
		s.bindRole(in.Name, v1alpha1.ClusterRoleKind, "cluster-admin", userSubject(s.name("owner")))
		s.eventually(func(c *assert.CollectT) {
			assert.True(c, s.isAllowed(s.name("owner"), in.Name, "update", "namespaces"))
		})
	}
	finalize := func(ns *corev1.Namespace) error {
		current, err := owner.CoreV1().Namespaces().Get(t.Context(), ns.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Spec.Finalizers = nil
		_, err = owner.CoreV1().Namespaces().Finalize(t.Context(), current, metav1.UpdateOptions{})
		return err
	}
	expectForbidden(t, finalize(ns),
		"user "+s.name("owner")+" needs the verb update on namespaces/finalize in all namespaces")
	require.NoError(t, finalize(free))
	require.NoError(t, s.client.Delete(t.Context(), ns))
	s.waitDeleted(ns)
}
