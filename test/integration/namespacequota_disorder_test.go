package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// lastNamespace is the short name of the namespace that is created last.
const lastNamespace = "end"

// watchNamespaces follows the namespaces of a scope until lastNamespace. Each limit is for some policyspaces together.
// The channel then has the changes after which more namespaces existed than the limits allow.
func watchNamespaces(s *testScope, limits map[int][]string) <-chan []string {
	s.t.Helper()
	clients, err := kubernetes.NewForConfig(s.controlPlane.RESTConfig())
	require.NoError(s.t, err)
	events, err := clients.CoreV1().Namespaces().Watch(s.t.Context(),
		metav1.ListOptions{LabelSelector: testLabel + "=" + s.id})
	require.NoError(s.t, err)
	result := make(chan []string, 1)
	go func() {
		defer events.Stop()
		exceeded := []string{}
		spaceOf := map[string]string{}
		for event := range events.ResultChan() {
			ns, ok := event.Object.(*corev1.Namespace)
			if !ok {
				exceeded = append(exceeded, fmt.Sprintf("the watch failed: %v", event.Object))
				break
			}
			if ns.Name == s.name(lastNamespace) {
				break
			}
			if spaceOf[ns.Name] = ns.Labels[v1alpha1.PolicySpaceLabel]; event.Type == watch.Deleted {
				delete(spaceOf, ns.Name)
			}
			for limit, spaces := range limits {
				count := 0
				for _, space := range spaces {
					for _, in := range spaceOf {
						if in == s.name(space) {
							count++
						}
					}
				}
				if count > limit {
					exceeded = append(exceeded,
						fmt.Sprintf("%s of %s: %d of %d in %v", event.Type, ns.Name, count, limit, spaces))
				}
			}
		}
		result <- exceeded
	}()
	return result
}

// Users create, apply, move and delete namespaces at random, try dry runs and lose requests, while one replica is
// suspended, and the other one is killed and started again. At no time do more namespaces exist than the limits allow,
// and in the end as many can.
func TestNamespaceQuotaIsExactInDisorder(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	const users, steps, inChild, inRoot = 6, 30, 4, 8
	s, service, second := newReplicas(t)
	first := s.operator
	t.Cleanup(func() { _ = second.Kill() })
	s.createLimitedSpace(s.newSpace("root", "", countNamespaces, fmt.Sprint(inRoot)))
	s.createLimitedSpace(s.newSpace("a", "root", countNamespaces, fmt.Sprint(inChild)))
	s.createSpace("b", "root")
	s.createSpace("free", "")
	lost := s.losesNamespaces()
	exceeded := watchNamespaces(s, map[int][]string{inChild: {"a"}, inRoot: {"root", "a", "b"}})

	var done atomic.Int64
	work := make(chan error, 1)
	clients := make([]client.Client, users)
	for i := range clients {
		clients[i] = s.newAllVerbsClient(fmt.Sprint("user", i))
	}
	go func() {
		work <- concurrently(users, func(user int) error {
			r := rand.New(rand.NewPCG(uint64(user), 1)) //nolint:gosec // the tests are reproducible
			for step := range steps {
				requestAtRandom(s, clients[user], r, user, step, lost)
				done.Add(1)
			}
			return nil
		})
	}()
	waitDone := func(part int64) {
		s.eventuallyWithin(5*time.Minute, func(c *assert.CollectT) {
			assert.GreaterOrEqual(c, done.Load(), users*steps*part/4)
		})
	}
	waitDone(1)
	require.NoError(t, second.Signal(syscall.SIGSTOP))
	waitDone(2)
	require.NoError(t, second.Signal(syscall.SIGCONT))
	waitDone(3)
	service.Use(second.Webhooks)
	require.NoError(t, first.Kill())
	third, err := s.startReplica(t.Context(), "--leader-elect=true")
	require.NoError(t, err)
	s.operator = third
	service.Use(second.Webhooks, third.Webhooks)
	require.NoError(t, <-work)

	s.eventually(func(c *assert.CollectT) { // namespaces that are being deleted count until they are gone
		list := &corev1.NamespaceList{}
		assert.NoError(c, s.client.List(t.Context(), list, client.MatchingLabels{testLabel: s.id}))
		for i := range list.Items {
			assert.Nil(c, list.Items[i].DeletionTimestamp, list.Items[i].Name)
		}
	})
	for i := range inRoot + 1 {
		_ = s.createInSpace(s.client, fmt.Sprint("last", i), "b")
	}
	total, _ := s.countByCreator("root", "a", "b")
	require.Equal(t, inRoot, total)
	s.createNamespace(lastNamespace)
	require.Empty(t, <-exceeded)
}

// requestAtRandom does something with a namespace of a user. Most of it fails: for lack of room, because the namespace
// exists or does not exist, or because a replica does not answer.
func requestAtRandom(s *testScope, as client.Client, r *rand.Rand, user, step int, lost func(*corev1.Namespace)) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.t.Context()), 3*time.Second)
	defer cancel()
	// Few names, so that they are created again, moved and deleted by requests at the same time.
	short := fmt.Sprintf("n%d-%d", user/2, r.IntN(4))
	space := []string{"a", "b", "root", "free"}[r.IntN(4)]
	ns := s.newNamespace(short, s.inSpace(space))
	switch r.IntN(8) {
	case 0, 1:
		_ = as.Create(ctx, ns)
	case 2:
		ns.Name, ns.GenerateName = "", s.name(short)
		_ = as.Create(ctx, ns)
	case 3:
		object := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{
				"name": ns.Name, "labels": map[string]any{
					v1alpha1.PolicySpaceLabel: s.name(space), testLabel: s.id,
				},
			},
		}}
		_ = as.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("user"),
			client.ForceOwnership)
	case 4:
		_ = as.Create(ctx, ns, client.DryRunAll)
		if step == 0 {
			lost(ns)
			_ = as.Create(ctx, ns)
		}
	case 5, 6:
		_ = as.Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}}, mergePatch(fmt.Sprintf(
			`{"metadata": {"labels": {%q: %q}}}`, v1alpha1.PolicySpaceLabel, s.name(space))))
	case 7:
		_ = as.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns.Name}})
	}
}
