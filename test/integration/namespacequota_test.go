package integration_test

import (
	"flag"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/quota"
	"nstpl.dev/nstpl/test/marks"
)

// isLargeNamespaceQuota makes TestNamespaceQuotaIsExactUnderLoad create 1,000 namespaces by 50 users.
var isLargeNamespaceQuota = flag.Bool("namespacequota.large", false, "create 1,000 namespaces by 50 users")

const countNamespaces = string(quota.Namespaces)

// maxOfName is how many requests may create the same namespace at once.
const maxOfName = 10

// perCreator returns a change of a policyspace that limits the namespaces per creator.
func perCreator(hard int32, exceptions ...v1alpha1.CreatorException) func(*v1alpha1.PolicySpace) {
	return func(space *v1alpha1.PolicySpace) {
		if space.Spec.Quota == nil {
			space.Spec.Quota = &v1alpha1.PolicySpaceQuota{}
		}
		space.Spec.Quota.NamespacesPerCreator = &v1alpha1.NamespacesPerCreator{Hard: hard, Exceptions: exceptions}
	}
}

// expectCreatorExceeded fails unless a request was denied because a creator has too many namespaces.
func expectCreatorExceeded(t *testing.T, err error, creator string, used, limit int) {
	t.Helper()
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	require.ErrorContains(t, err, fmt.Sprintf("user %s has created %d namespace", creator, used))
	require.ErrorContains(t, err, fmt.Sprintf("its limit per creator is %d (nstpl:creator-quota)", limit))
}

// Two replicas allow exactly as many namespaces as the limits of two levels and the limit per creator do, even if many
// users create them at once and one replica is killed.
func TestNamespaceQuotaIsExactUnderLoad(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	users, attempts, inChild, inRoot := 8, 5, 20, 50
	if *isLargeNamespaceQuota {
		users, attempts, inChild, inRoot = 50, 15, 500, 1000
	}
	s, service, second := newReplicas(t)
	s.createLimitedSpace(s.newSpace("root", "", countNamespaces, fmt.Sprint(inRoot)), perCreator(int32(2*attempts)))
	s.createLimitedSpace(s.newSpace("a", "root", countNamespaces, fmt.Sprint(inChild)))
	s.createSpace("b", "root")
	clients := make([]client.Client, users)
	for i := range users {
		clients[i] = s.newAllVerbsClient(fmt.Sprint("user", i))
	}
	var denied sync.Map
	create := func(user int, short, space string) error {
		err := s.createInSpace(clients[user], short, space)
		if err != nil && apierrors.IsForbidden(err) {
			denied.Store(short, err.Error())
			return nil
		}
		return err
	}

	t.Run("a user who creates as many as possible", func(t *testing.T) {
		require.NoError(t, concurrently(2*attempts+10, func(i int) error { return create(0, fmt.Sprint("greedy", i), "b") }))
		total, creators := s.withT(t).countByCreator("a", "b")
		require.Equal(t, 2*attempts, total)
		require.Equal(t, map[string]int{"user0": 2 * attempts}, creators)
	})
	everyone := func(t *testing.T, phase, space string) {
		t.Helper()
		require.NoError(t, concurrently(users-1, func(user int) error {
			for i := range attempts {
				if err := create(user+1, fmt.Sprintf("%s-%d-%d", phase, user, i), space); err != nil {
					return err
				}
			}
			return nil
		}))
	}
	t.Run("all others in the space with the lower limit", func(t *testing.T) {
		everyone(t, "one", "a")
		total, _ := s.withT(t).countByCreator("a")
		require.Equal(t, inChild, total)
	})
	t.Run("all others in the other space, while a replica is killed", func(t *testing.T) {
		first, killed := s.operator, make(chan error, 1)
		go func() {
			service.Use(second.Webhooks)
			killed <- first.Kill()
		}()
		s.operator = second
		everyone(t, "two", "b")
		require.NoError(t, <-killed)
		total, creators := s.withT(t).countByCreator("a", "b")
		require.Equal(t, inRoot, total)
		for creator, namespaces := range creators {
			require.LessOrEqual(t, namespaces, 2*attempts, creator)
		}
	})
	denied.Range(func(short, text any) bool {
		switch {
		case strings.HasPrefix(short.(string), "greedy"):
			require.Contains(t, text, "its limit per creator is")
		case strings.HasPrefix(short.(string), "one"):
			require.Contains(t, text, fmt.Sprintf("exceeded quota in policyspace %q, requested: count/namespaces=%d",
				s.name("a"), inChild+1))
		default:
			require.Contains(t, text, fmt.Sprintf("exceeded quota in policyspace %q, requested: count/namespaces=%d",
				s.name("root"), inRoot+1))
		}
		return true
	})
	s.waitSpaceStatus("root", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		used := status.Used[quota.Namespaces]
		assert.EqualValues(c, inRoot, used.Value())
		assert.Empty(c, status.NamespaceReservations)
		assert.True(c, apimeta.IsStatusConditionFalse(status.Conditions, v1alpha1.PolicySpaceExceeded))
	})
}

// namespaceQuotaWebhooks returns the names of the webhooks for limits on namespaces.
func namespaceQuotaWebhooks(s *testScope, c require.TestingT) []string {
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(c, s.client.Get(s.t.Context(), client.ObjectKey{Name: v1alpha1.WebhookName}, configuration))
	var names []string
	for _, one := range configuration.Webhooks {
		if strings.HasPrefix(one.Name, "namespace-quota") {
			names = append(names, one.Name)
		}
	}
	return names
}

// createNamespaceAs creates a namespace in a policyspace, without retries.
func createNamespaceAs(
	s *testScope, as client.Client, short, space string, change ...func(*corev1.Namespace),
) error {
	return as.Create(s.t.Context(), s.newNamespace(short, append(change, s.inSpace(space))...))
}

// moveNamespaceAs moves a namespace to a policyspace.
func moveNamespaceAs(s *testScope, as client.Client, short, space string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name(short)}}
	return as.Patch(s.t.Context(), ns, mergePatch(labelPatch(v1alpha1.PolicySpaceLabel, `"`+s.name(space)+`"`)))
}

func TestNamespaceQuota(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	alice, bob := s.newAllVerbsClient("alice"), s.newAllVerbsClient("bob")
	s.createSpace("free", "")
	require.Empty(t, namespaceQuotaWebhooks(s, t), "no webhook is called while nothing limits namespaces")
	s.createLimitedSpace(s.newSpace("root", "", countNamespaces, "4"))
	s.createLimitedSpace(s.newSpace("a", "root", countNamespaces, "2", "pods", "5"))
	s.createSpace("b", "root")

	t.Run("the nearest limit denies, and then the one above", func(t *testing.T) {
		expectNearestLimitDenies(t, s.withT(t), alice, bob)
	})

	t.Run("the ResourceQuota of a namespace does not count namespaces", func(t *testing.T) {
		expectNamespacesAreNotCountedInNamespaces(t, s.withT(t))
	})

	t.Run("a deletion makes room when the namespace is gone", func(t *testing.T) {
		expectDeletionMakesRoom(t, s.withT(t), alice)
	})

	t.Run("a dry run reserves nothing and is denied without room", func(t *testing.T) {
		expectDryRunReservesNothing(t, s.withT(t), alice)
	})

	t.Run("a namespace that moves needs room where it is new", func(t *testing.T) {
		expectMovedNamespaceNeedsRoom(t, s.withT(t), alice, bob)
	})

	t.Run("the name of a namespace that exists takes no room", func(t *testing.T) {
		expectExistingNameNeedsNoRoom(t, s.withT(t), alice, bob)
	})

	t.Run("a policyspace that moves takes its namespaces along", func(t *testing.T) {
		expectMovedSpaceCountsItsNamespaces(t, s.withT(t), alice, bob)
	})

	t.Run("what exists beyond a limit stays", func(t *testing.T) {
		expectNamespacesBeyondALimitStay(t, s.withT(t), alice, bob)
	})

	t.Run("a policyspace that is created below a limit is limited at once", func(t *testing.T) {
		expectSpaceBelowALimitIsLimited(t, s.withT(t), alice)
	})

	t.Run("without limits there are no webhooks again", func(t *testing.T) {
		expectNoWebhooksWithoutLimits(t, s.withT(t), alice)
	})
}

func expectNearestLimitDenies(t *testing.T, s *testScope, alice, bob client.Client) {
	t.Helper()
	require.NoError(t, createNamespaceAs(s, alice, "a1", "a"))
	require.NoError(t, createNamespaceAs(s, alice, "a2", "a"))
	s.expectQuotaExceeded(createNamespaceAs(s, alice, "a3", "a"), "a", "count/namespaces=3", "count/namespaces=2")
	require.NoError(t, createNamespaceAs(s, alice, "b1", "b"))
	generated := s.newNamespace("", s.inSpace("b"))
	generated.Name, generated.GenerateName = "", s.name("generated-")
	require.NoError(t, bob.Create(t.Context(), generated))
	s.expectQuotaExceeded(createNamespaceAs(s, bob, "b3", "b"), "root", "count/namespaces=5", "count/namespaces=4")
	require.NoError(t, createNamespaceAs(s, bob, "elsewhere", "free"))
	s.waitUsage("root", "count/namespaces: 4/4")
	s.waitUsage("a", "count/namespaces: 2/2, pods: 0/5")
	s.delete(generated)
}

func expectNamespacesAreNotCountedInNamespaces(t *testing.T, s *testScope) {
	t.Helper()
	s.waitCounted(s.name("a1"))
	counter, err := s.getUsageQuota(t.Context(), s.name("a1"))
	require.NoError(t, err)
	require.Contains(t, counter.Spec.Hard, corev1.ResourcePods)
	require.NotContains(t, counter.Spec.Hard, quota.Namespaces)
	_, err = s.getUsageQuota(t.Context(), s.name("b1"))
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

func expectDeletionMakesRoom(t *testing.T, s *testScope, alice client.Client) {
	t.Helper()
	s.waitDeleted(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: generatedName(s, "b")}})
	remove := s.addFinalizerToNamespace("b1")
	s.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("b1")}})
	require.NoError(t, createNamespaceAs(s, alice, "b2", "b"))
	s.expectQuotaExceeded(createNamespaceAs(s, alice, "b3", "b"), "root", "count/namespaces=5", "count/namespaces=4")
	remove()
	s.waitDeleted(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("b1")}})
	require.NoError(t, s.createInSpace(alice, "b3", "b"))
	s.expectQuotaExceeded(createNamespaceAs(s, alice, "b4", "b"), "root", "count/namespaces=5", "count/namespaces=4")
}

func expectDryRunReservesNothing(t *testing.T, s *testScope, alice client.Client) {
	t.Helper()
	s.createLimitedSpace(s.newSpace("dry", "", countNamespaces, "1"))
	for range 3 {
		require.NoError(t, alice.Create(t.Context(), s.newNamespace("dry1", s.inSpace("dry")), client.DryRunAll))
	}
	require.NoError(t, createNamespaceAs(s, alice, "dry1", "dry"))
	s.expectQuotaExceeded(alice.Create(t.Context(), s.newNamespace("dry2", s.inSpace("dry")), client.DryRunAll), "dry",
		"count/namespaces=2", "count/namespaces=1")
}

func expectMovedNamespaceNeedsRoom(t *testing.T, s *testScope, alice, bob client.Client) {
	t.Helper()
	s.createLimitedSpace(s.newSpace("top", "", countNamespaces, "2"))
	s.createLimitedSpace(s.newSpace("left", "top", countNamespaces, "1"))
	s.createSpace("right", "top")
	for _, short := range []string{"m1", "m2", "m3"} {
		require.NoError(t, createNamespaceAs(s, alice, short, "free"))
	}
	require.NoError(t, moveNamespaceAs(s, alice, "m1", "left"))
	s.expectQuotaExceeded(moveNamespaceAs(s, bob, "m2", "left"), "left", "count/namespaces=2", "count/namespaces=1")
	require.NoError(t, moveNamespaceAs(s, alice, "m2", "right"))
	s.expectQuotaExceeded(moveNamespaceAs(s, bob, "m3", "right"), "top", "count/namespaces=3", "count/namespaces=2")
	for _, subresource := range []string{"status", "finalize"} {
		ns := &corev1.Namespace{}
		require.NoError(t, bob.Get(t.Context(), client.ObjectKey{Name: s.name("m3")}, ns))
		ns.Labels[v1alpha1.PolicySpaceLabel] = s.name("right")
		s.expectQuotaExceeded(bob.SubResource(subresource).Update(t.Context(), ns), "top", "count/namespaces=3",
			"count/namespaces=2")
	}
	require.NoError(t, moveNamespaceAs(s, alice, "m1", "right"), "within the same space, nothing is added")
	require.NoError(t, retryPlacing(func() error { return moveNamespaceAs(s, alice, "m2", "left") }))
	s.waitUsage("top", "count/namespaces: 2/2")
	require.NoError(t, moveNamespaceAs(s, alice, "m2", "free"))
	s.waitUsage("left", "count/namespaces: 0/1")
	require.NoError(t, moveNamespaceAs(s, alice, "m3", "left"))
}

func expectExistingNameNeedsNoRoom(t *testing.T, s *testScope, alice, bob client.Client) {
	t.Helper()
	s.createLimitedSpace(s.newSpace("taken", "", countNamespaces, "2"))
	require.NoError(t, createNamespaceAs(s, alice, "taken-elsewhere", "free"))
	require.NoError(t, createNamespaceAs(s, alice, "taken", "taken"))
	for _, short := range []string{"taken", "taken-elsewhere"} {
		for range maxOfName + 1 {
			err := createNamespaceAs(s, alice, short, "taken")
			require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
		}
	}
	applied := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
			"name": s.name("applied"), "labels": map[string]any{v1alpha1.PolicySpaceLabel: s.name("taken")},
		},
	}}
	apply := func() error {
		return bob.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied.DeepCopy()),
			client.FieldOwner("bob"), client.ForceOwnership)
	}
	require.NoError(t, apply())
	require.NoError(t, apply(), "it exists")
	applied.SetName(s.name("applied-too"))
	s.expectQuotaExceeded(apply(), "taken", "count/namespaces=3", "count/namespaces=2")
}

func expectMovedSpaceCountsItsNamespaces(t *testing.T, s *testScope, alice, bob client.Client) {
	t.Helper()
	s.createLimitedSpace(s.newSpace("target", "", countNamespaces, "2"))
	moved := s.createSpace("moved", "")
	for i := range 3 {
		require.NoError(t, createNamespaceAs(s, alice, fmt.Sprint("moved", i), "moved"))
	}
	require.NoError(t, s.client.Patch(t.Context(), moved, mergePatch(`{"spec": {"parent": "`+s.name("target")+`"}}`)))
	s.waitUsage("target", "count/namespaces: 3/2")
	for _, space := range []string{"target", "moved"} {
		s.expectQuotaExceeded(createNamespaceAs(s, bob, "one-more", space), "target", "count/namespaces=4", "count/namespaces=2")
	}
	require.NoError(t, s.client.Patch(t.Context(), moved, mergePatch(`{"spec": {"parent": null}}`)))
	s.waitUsage("target", "count/namespaces: 0/2")
	require.NoError(t, createNamespaceAs(s, bob, "one-more", "target"))
}

func expectNamespacesBeyondALimitStay(t *testing.T, s *testScope, alice, bob client.Client) {
	t.Helper()
	s.createSpace("late", "")
	for i := range 3 {
		require.NoError(t, createNamespaceAs(s, alice, fmt.Sprint("late", i), "late"))
	}
	space := s.newSpace("late", "")
	require.NoError(t, s.client.Patch(t.Context(), space,
		mergePatch(`{"spec": {"quota": {"hard": {"count/namespaces": "2"}, "namespacesPerCreator": {"hard": 1}}}}`)))
	s.waitSpaceStatus("late", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		exceeded := apimeta.FindStatusCondition(status.Conditions, v1alpha1.PolicySpaceExceeded)
		if assert.NotNil(c, exceeded) {
			assert.Equal(c, metav1.ConditionTrue, exceeded.Status)
			assert.Equal(c, "count/namespaces: 3 of 2", exceeded.Message)
		}
		assert.Equal(c, "count/namespaces: 3/2", status.Quota)
	})
	s.expectQuotaExceeded(createNamespaceAs(s, bob, "late3", "late"), "late", "count/namespaces=4", "count/namespaces=2")
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKey{Name: s.name("late2")}, &corev1.Namespace{}))
	s.patchNamespace(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("late2")}},
		`{"metadata": {"labels": {"other": "change"}}}`)
}

func expectSpaceBelowALimitIsLimited(t *testing.T, s *testScope, alice client.Client) {
	t.Helper()
	s.createLimitedSpace(s.newSpace("parent", "", countNamespaces, "3"))
	for i := range 5 {
		child := fmt.Sprint("child", i)
		s.createSpace(child, "parent")
		err := createNamespaceAs(s, alice, fmt.Sprint("of-child", i), child)
		if i < 3 {
			require.NoError(t, err)
		} else {
			s.expectQuotaExceeded(err, "parent", "count/namespaces=4", "count/namespaces=3")
		}
	}
}

func expectNoWebhooksWithoutLimits(t *testing.T, s *testScope, alice client.Client) {
	t.Helper()
	require.NotEmpty(t, namespaceQuotaWebhooks(s, t))
	spaces := &v1alpha1.PolicySpaceList{}
	require.NoError(t, s.client.List(t.Context(), spaces))
	for i := range spaces.Items {
		require.NoError(t, s.client.Patch(t.Context(), &spaces.Items[i], mergePatch(`{"spec": {"quota": null}}`)))
	}
	s.eventually(func(c *assert.CollectT) { assert.Empty(c, namespaceQuotaWebhooks(s, t)) })
	require.NoError(t, s.createInSpace(alice, "unlimited", "a"))
	s.waitSpaceStatus("a", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Empty(c, status.Quota)
		assert.Empty(c, status.NamespacesAsOf)
	})
}

// retryPlacing repeats a request until it is not denied. A move is denied until the one before is known.
func retryPlacing(do func() error) error {
	return retry.OnError(retry.DefaultBackoff, func(error) bool { return true }, do)
}

// generatedName returns the name of the namespace in a policyspace whose name the API server generated, or another one
// if it does not exist any more.
func generatedName(s *testScope, space string) string {
	s.t.Helper()
	list := &corev1.NamespaceList{}
	require.NoError(s.t, s.client.List(s.t.Context(), list,
		client.MatchingLabels{v1alpha1.PolicySpaceLabel: s.name(space)}))
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].Name, s.name("generated-")) {
			return list.Items[i].Name
		}
	}
	return s.name("generated-none")
}

func TestNamespaceQuotaPerCreator(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	group := s.name("leads")
	s.createLimitedSpace(s.newSpace("root", ""), perCreator(2,
		v1alpha1.CreatorException{Kind: "User", Name: "carol", Hard: new(int32(3))},
		v1alpha1.CreatorException{Kind: "Group", Name: group},
		v1alpha1.CreatorException{Kind: "ServiceAccount", Name: "builder", Namespace: "default", Hard: new(int32(1))},
	))
	s.createSpace("a", "root")
	s.createSpace("free", "")
	alice, bob := s.newAllVerbsClient("alice"), s.newAllVerbsClient("bob")

	t.Run("each user has a limit, in all spaces below together", func(t *testing.T) {
		require.NoError(t, createNamespaceAs(s, alice, "alice1", "root"))
		require.NoError(t, createNamespaceAs(s, alice, "alice2", "a"))
		expectCreatorExceeded(t, createNamespaceAs(s, alice, "alice3", "a"), "alice", 2, 2)
		require.NoError(t, createNamespaceAs(s, bob, "bob1", "a"))
		require.NoError(t, createNamespaceAs(s, alice, "alice3", "free"))
	})

	t.Run("users without the verb set-creator cannot forge, change or remove the creator", func(t *testing.T) {
		s := s.withT(t)
		eve := s.newTemplateAuthor("eve", policyRule("get create patch", "", "namespaces"),
			policyRule("use", v1alpha1.GroupVersion.Group, "policyspaces"))
		require.NoError(t, createNamespaceAs(s, eve, "eve1", "a"))
		require.NoError(t, createNamespaceAs(s, eve, "eve2", "a"))
		err := createNamespaceAs(s, eve, "forged", "a", withCreator("dave"))
		require.True(t, apierrors.IsForbidden(err), "%v", err)
		for _, value := range []string{`"dave"`, "null"} {
			ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("alice1")}}
			_ = eve.Patch(t.Context(), ns, mergePatch(fmt.Sprintf(`{"metadata": {"annotations": {%q: %s}}}`,
				v1alpha1.CreatorAnnotation, value)))
			require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(ns), ns))
			require.Equal(t, "alice", ns.Annotations[v1alpha1.CreatorAnnotation])
		}
		expectCreatorExceeded(t, createNamespaceAs(s, alice, "alice4", "a"), "alice", 2, 2)
	})

	t.Run("another user cannot move the namespace of a user without room", func(t *testing.T) {
		s := s.withT(t)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("alice3")}}
		body := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, s.name("a"))
		expectCreatorExceeded(t, bob.Patch(t.Context(), ns, mergePatch(body)), "alice", 2, 2)
		expectCreatorExceeded(t, alice.Patch(t.Context(), ns, mergePatch(body)), "alice", 2, 2)
	})

	t.Run("exceptions", func(t *testing.T) {
		s := s.withT(t)
		carol, lead := s.newAllVerbsClient("carol"), s.newAllVerbsClient("lead", group)
		for i := range 3 {
			require.NoError(t, createNamespaceAs(s, carol, fmt.Sprint("carol", i), "a"))
		}
		expectCreatorExceeded(t, createNamespaceAs(s, carol, "carol3", "a"), "carol", 3, 3)
		for i := range 4 {
			require.NoError(t, createNamespaceAs(s, lead, fmt.Sprint("lead", i), "a"))
		}
		builder := s.newServiceAccountClient("default", "builder")
		require.NoError(t, createNamespaceAs(s, builder, "builder0", "a"))
		expectCreatorExceeded(t, createNamespaceAs(s, builder, "builder1", "a"), "system:serviceaccount:default:builder", 1, 1)
		// A user could make as many ServiceAccounts as she likes, and namespaces as each of them.
		spare := s.newServiceAccountClient("default", "spare")
		require.ErrorContains(t, createNamespaceAs(s, spare, "spare0", "a"), "names the ServiceAccount default/spare")
		require.NoError(t, createNamespaceAs(s, spare, "spare0", "free"))
		s.waitSpaceStatus("root", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
			assert.True(c, apimeta.IsStatusConditionFalse(status.Conditions, v1alpha1.PolicySpaceExceeded),
				"the groups of creators are unknown")
		})
		// Another user does not know the groups of the creator.
		require.NoError(t, createNamespaceAs(s, lead, "lead4", "free"))
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("lead4")}}
		s.waitInitialized(ns) // its last write would otherwise make the check of the patch begin again
		body := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, s.name("a"))
		expectCreatorExceeded(t, bob.Patch(t.Context(), ns, mergePatch(body)), "lead", 4, 2)
		require.NoError(t, lead.Patch(t.Context(), ns, mergePatch(body)))
	})

	t.Run("a quota limits something", func(t *testing.T) {
		s := s.withT(t)
		space := s.newSpace("empty", "")
		space.Spec.Quota = &v1alpha1.PolicySpaceQuota{}
		require.ErrorContains(t, s.client.Create(t.Context(), space), "set hard, namespacesPerCreator, or both")
	})
}

// While no replica answers, namespaces are put into no policyspace with a limit, and everything else goes on.
func TestNamespaceQuotaWithoutOperator(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.createLimitedSpace(s.newSpace("root", "", countNamespaces, "4"))
	s.createSpace("below", "root")
	s.createSpace("free", "")
	require.NoError(t, s.client.Create(t.Context(), s.newNamespace("moving", s.inSpace("free"))))
	s.eventually(func(c *assert.CollectT) { // until the webhooks name the policyspace
		configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: v1alpha1.WebhookName}, configuration))
		assert.Contains(c, fmt.Sprint(configuration.Webhooks), s.name("below"))
	})
	require.NoError(t, s.operator.Kill())
	for _, space := range []string{"root", "below"} {
		err := s.client.Create(t.Context(), s.newNamespace("in-"+space, s.inSpace(space)))
		require.ErrorContains(t, err, `failed calling webhook "namespace-quota.policy.nstpl.dev"`)
		err = s.client.Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.name("moving")}},
			mergePatch(fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, s.name(space))))
		require.ErrorContains(t, err, `failed calling webhook "namespace-quota.policy.nstpl.dev"`)
	}
	require.NoError(t, s.client.Create(t.Context(), s.newNamespace("in-free", s.inSpace("free"))))
	require.NoError(t, s.client.Create(t.Context(), s.newNamespace("in-none")))
	require.NoError(t, s.startOperator(t.Context()))
	require.NoError(t, s.createInSpace(s.client, "after", "below"))
	s.waitUsage("root", "count/namespaces: 1/4")
}

// The limit of a policyspace that is Ready is enforced, also if the operator ends at that moment.
func TestNamespaceQuotaIsEnforcedWhenReady(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.createLimitedSpace(s.newSpace("first", "", countNamespaces, "1"))
	s.createLimitedSpace(s.newSpace("second", "", countNamespaces, "1"))
	require.NoError(t, s.operator.Kill())
	err := s.client.Create(t.Context(), s.newNamespace("in-second", s.inSpace("second")))
	require.ErrorContains(t, err, `failed calling webhook "namespace-quota.policy.nstpl.dev"`)
	require.NoError(t, s.startOperator(t.Context()))
}

// A request that is denied after the operator has allowed it frees its room. Until then, other requests are asked to try
// again, since the API server could still store the namespace.
func TestNamespaceQuotaFreesTheRoomOfLostRequests(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.createLimitedSpace(s.newSpace("a", "", countNamespaces, "1"))
	lost := s.losesNamespaces()
	err := s.client.Create(t.Context(), s.newNamespace("lost", s.inSpace("a"), lost))
	require.ErrorContains(t, err, "denies.example.com")
	s.waitSpaceStatus("a", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Len(c, status.NamespaceReservations, 1)
		assert.Equal(c, "count/namespaces: 1/1", status.Quota)
	})
	for range 2 * maxOfName {
		require.Error(t, s.client.Create(t.Context(), s.newNamespace("lost", s.inSpace("a"), lost)))
	}
	s.waitSpaceStatus("a", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Len(c, status.NamespaceReservations, maxOfName, "they do not fill the status")
		assert.Equal(c, "count/namespaces: 1/1", status.Quota)
	})
	err = s.createInSpaceOnce(s.impersonate(t, "admin", "system:masters"), "early", "a")
	require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
	require.ErrorContains(t, err, "is reserved while")
	require.NoError(t, s.createInSpace(s.client, "patient", "a"))
	s.expectQuotaExceeded(s.client.Create(t.Context(), s.newNamespace("more", s.inSpace("a"))), "a",
		"count/namespaces=2", "count/namespaces=1")
}

// A replica whose watches are late allows nothing that the others have used up.
func TestNamespaceQuotaWaitsForALateReplica(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s, replicas := newLateReplica(t)
	s.createLimitedSpace(s.newSpace("a", "", countNamespaces, "5"), perCreator(2))
	replicas.useLate()
	require.NoError(t, s.createInSpace(s.newAllVerbsClient("bob"), "bob", "a"))
	replicas.watches.holdWatches(t, "")
	replicas.useFirst()
	alice := s.newAllVerbsClient("alice")
	require.NoError(t, s.createInSpace(alice, "alice1", "a"))
	require.NoError(t, s.createInSpace(alice, "alice2", "a"))
	s.waitSpaceStatus("a", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Empty(c, status.NamespaceReservations)
	})
	replicas.useLate()
	err := s.createInSpaceOnce(s.impersonate(t, "alice", s.allVerbsGroup()), "alice3", "a")
	require.True(t, apierrors.IsTooManyRequests(err), "the late replica cannot know: %v", err)
	require.ErrorContains(t, err, "has not counted the namespaces")
	replicas.watches.releaseWatches()
	s.eventually(func(c *assert.CollectT) {
		err := alice.Create(t.Context(), s.newNamespace("alice3", s.inSpace("a")))
		assert.ErrorContains(c, err, "user alice has created 2 namespaces")
	})
}
