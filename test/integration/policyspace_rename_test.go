package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/test/marks"
)

// churnPause is the time between two attempts, so that the machine has time for the operator, too.
const churnPause = 10 * time.Millisecond

// overcountedFor is how many attempts in a row may find that Kubernetes counts more pods than there are. The API server
// charges for each pod before it stores it.
const overcountedFor = 100

// churnPods tries to create pods in namespaces all the time, and deletes one whenever there are 3, until stop is
// called. It counts the pods that it created. stop returns the highest number of pods at a time.
//
// It also deletes a pod if Kubernetes goes on counting more than there are. Its controller compares what it counts with
// the ResourceQuota in its cache. If that is late, it may take the count for stored, and counts again after five
// minutes, or when another pod is deleted.
func churnPods(s *testScope, namespaces ...string) (created *atomic.Int64, stop func() (most int)) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	var group sync.WaitGroup
	var made atomic.Int64
	most := 0
	var refusals sync.Map // the last one of each namespace
	s.t.Cleanup(func() {
		if !s.t.Failed() {
			return
		}
		refusals.Range(func(ns, refusal any) bool {
			s.t.Log(ns, refusal)
			return true
		})
		for _, ns := range namespaces { // what is counted, and what exists
			out, err := s.kubectl(context.WithoutCancel(s.t.Context()), "", "get", "resourcequotas,pods", "-n", ns, "-o",
				"yaml", "--show-managed-fields")
			s.t.Log(out, err)
		}
		out, err := s.kubectl(context.WithoutCancel(s.t.Context()), "", "get", "policyspaces", "-o", "yaml")
		s.t.Log(out, err)
	})
	for _, ns := range namespaces {
		group.Go(func() {
			wait.UntilWithContext(ctx, func(ctx context.Context) {
				pod := newPod(ns, "")
				pod.GenerateName, pod.Labels = "p-", map[string]string{"churn": s.id}
				if err := s.client.Create(ctx, pod); err == nil {
					made.Add(1)
				} else {
					refusals.Store(ns, fmt.Sprint(time.Now().Format(time.TimeOnly), " ", err))
				}
			}, churnPause)
		})
	}
	overcounted := 0
	group.Go(func() {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			pods := &corev1.PodList{}
			if s.client.List(ctx, pods, client.MatchingLabels{"churn": s.id}) != nil {
				return
			}
			most = max(most, len(pods.Items))
			if overcounted++; s.countedPods(ctx, namespaces) <= int64(len(pods.Items)) {
				overcounted = 0
			}
			if len(pods.Items) > 2 || len(pods.Items) > 0 && overcounted > overcountedFor {
				overcounted = 0
				_ = s.client.Delete(ctx, &pods.Items[0], client.GracePeriodSeconds(0)) // it may be deleted already
			}
		}, churnPause)
	})
	return &made, func() int {
		cancel()
		group.Wait()
		return most
	}
}

// countedPods returns how many pods the API server counts in namespaces.
func (s *testScope) countedPods(ctx context.Context, namespaces []string) int64 {
	counted := int64(0)
	for _, ns := range namespaces {
		if counter, err := s.getUsageQuota(ctx, ns); err == nil { // it may not exist yet
			counted += counter.Status.Used.Pods().Value()
		}
	}
	return counted
}

// Usage exceeds neither the quota of the old nor of the new name while a policyspace is renamed, in whatever order that
// is done.
func TestPolicySpaceQuotaIsEnforcedDuringRenames(t *testing.T) {
	t.Parallel()
	for name, rename := range map[string]func(s *testScope, namespaces []string){
		"at once": func(s *testScope, namespaces []string) {
			s.createSpace("engineering", "root", "pods", "3")
			for _, ns := range namespaces {
				s.moveNamespace(ns, "engineering")
			}
			s.delete(s.newSpace("eng", ""))
		},
		"one by one": func(s *testScope, namespaces []string) {
			s.createSpace("engineering", "root", "pods", "3")
			for _, ns := range namespaces {
				s.moveNamespace(ns, "engineering")
				s.waitInSpace(ns, "engineering")
			}
			s.delete(s.newSpace("eng", ""))
		},
		"with a new namespace": func(s *testScope, namespaces []string) {
			s.createSpace("engineering", "root", "pods", "3")
			s.createNamespaceInSpace("new", "engineering")
			for _, ns := range namespaces {
				s.moveNamespace(ns, "engineering")
				s.waitInSpace(ns, "engineering")
			}
			s.delete(s.newSpace("eng", ""))
		},
		"above them": func(s *testScope, namespaces []string) {
			s.createSpace("engineering", "root", "pods", "3")
			for i := range namespaces {
				require.NoError(s.t, s.client.Patch(s.t.Context(), s.newSpace(fmt.Sprint("team", i), ""),
					mergePatch(fmt.Sprintf(`{"spec": {"parent": %q}}`, s.name("engineering")))))
			}
			s.delete(s.newSpace("eng", ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			s.createSpace("root", "", "pods", "100")
			s.createSpace("eng", "root", "pods", "3")
			var namespaces []string
			for i := range 3 {
				team := fmt.Sprint("team", i)
				if name == "above them" {
					s.createSpace(team, "eng")
					namespaces = append(namespaces, s.createNamespaceInSpace(fmt.Sprint("n", i), team))
				} else {
					namespaces = append(namespaces, s.createNamespaceInSpace(fmt.Sprint("n", i), "eng"))
				}
			}
			s.waitCounted(namespaces...)
			created, stop := churnPods(s, namespaces...)
			more := func() {
				t.Helper()
				before := created.Load()
				s.eventually(func(c *assert.CollectT) { assert.Greater(c, created.Load(), before+10) })
			}
			more()
			rename(s, namespaces)
			for _, ns := range namespaces {
				s.eventually(func(c *assert.CollectT) {
					place := s.spaceDepths(c, ns)
					assert.Contains(c, place, "engineering")
					assert.NotContains(c, place, "eng")
				})
			}
			s.waitSpaceStatus("engineering", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
				assert.Equal(c, "pods: 3/3", status.Quota)
				assert.True(c, apimeta.IsStatusConditionTrue(status.Conditions, v1alpha1.PolicySpaceReady))
			})
			more()
			require.Equal(t, 3, stop())
		})
	}
}

// createOnce creates a pod as an administrator. It does not try again if it is asked to.
func (s *testScope) createOnce(namespace string) error {
	s.t.Helper()
	pod := newPod("", "")
	pod.GenerateName = "once-"
	return s.impersonate(s.t, "admin", "system:masters").CoreV1().RESTClient().Post().Namespace(namespace).
		Resource("pods").Body(pod).MaxRetries(0).Do(s.t.Context()).Error()
}

// Two policyspaces with the same limits share their usage while namespaces move between them. What exceeds a limit by
// that is deferred, and allowed once the usage is no longer shared.
func TestPolicySpacesShareUsageWhileNamespacesMove(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("a", "", "pods", "3")
	s.createSpace("b", "", "pods", "3")
	first, second := s.createNamespaceInSpace("first", "a"), s.createNamespaceInSpace("second", "a")
	s.waitCounted(first, second)
	for i, ns := range []string{first, second, second} {
		require.NoError(t, s.createWithRetries(newPod(ns, fmt.Sprint("p", i))))
	}
	s.moveNamespace(first, "b")
	s.waitInSpace(first, "b")
	s.waitSpaceStatus("b", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.EqualValues(c, 1, status.Namespaces)
		if assert.Len(c, status.SharedWith, 1) {
			assert.Equal(c, s.name("a"), status.SharedWith[0].Name)
			assert.WithinDuration(c, time.Now(), status.SharedWith[0].Until.Time, time.Minute)
		}
	})
	s.waitCounted(first, second)
	for _, ns := range []string{first, second} {
		err := s.createOnce(ns)
		require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
		require.ErrorContains(t, err, "because namespaces move from one to the other: try again")
		after, asked := apierrors.SuggestsClientDelay(err)
		require.True(t, asked)
		require.LessOrEqual(t, after, 3)
	}
	s.waitUsage("b", "pods: 1/3")
	s.waitUsage("a", "pods: 2/3")
	s.waitCounted(first, second)
	require.NoError(t, s.createWithRetries(newPod(first, "more")))
	require.NoError(t, s.createWithRetries(newPod(second, "more")))
	s.expectQuotaExceeded(s.createWithRetries(newPod(second, "most")), "a", "pods=4", "pods=3")
	s.waitSpaceStatus("a", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Empty(c, status.SharedWith)
	})
}

// A namespace that moves for good uses the quota of its new policyspace, even if the old one is full.
func TestPolicySpaceThatANamespaceLeftDeniesNothing(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("old", "", "pods", "3")
	leaving, staying := s.createNamespaceInSpace("leaving", "old"), s.createNamespaceInSpace("staying", "old")
	s.waitCounted(leaving, staying)
	for i, ns := range []string{leaving, staying, staying} {
		require.NoError(t, s.createWithRetries(newPod(ns, fmt.Sprint("p", i))))
	}
	s.createSpace("new", "", "pods", "25")
	s.moveNamespace(leaving, "new")
	for i := range 24 {
		require.NoError(t, s.createWithRetries(newPod(leaving, fmt.Sprint("more", i))))
	}
	s.waitUsage("old", "pods: 2/3")
	require.NoError(t, s.createWithRetries(newPod(staying, "p3")), "the room of the namespace that left")
	s.expectQuotaExceeded(s.createWithRetries(newPod(leaving, "most")), "new", "pods=26", "pods=25")
	s.expectQuotaExceeded(s.createWithRetries(newPod(staying, "most")), "old", "pods=4", "pods=3")
	s.waitSpaceStatus("new", func(c *assert.CollectT, status v1alpha1.PolicySpaceStatus) {
		assert.Empty(c, status.SharedWith)
	})
}

// Whatever moves below a policyspace, and whichever policyspaces are created and deleted there, its quota holds.
func TestPolicySpaceQuotaIsNotGainedByMoves(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createSpace("root", "", "pods", "4")
	s.createSpace("a", "root", "pods", "3")
	s.createSpace("b", "root", "pods", "3")
	s.createSpace("child", "a", "pods", "3")
	namespaces := []string{s.createNamespaceInSpace("n0", "a"), s.createNamespaceInSpace("n1", "b"),
		s.createNamespaceInSpace("n2", "child")}
	s.waitCounted(namespaces...)
	created, stop := churnPods(s, namespaces...)
	moveAll := func(to string) {
		for _, ns := range namespaces[:2] {
			s.moveNamespace(ns, to)
			s.waitInSpace(ns, to)
		}
	}
	setParent := func(parent string) {
		require.NoError(t, s.client.Patch(t.Context(), s.newSpace("child", ""),
			mergePatch(fmt.Sprintf(`{"spec": {"parent": %q}}`, s.name(parent)))))
		s.waitInSpace(namespaces[2], parent)
	}
	for range 2 { // back and forth
		moveAll("b")
		setParent("b")
		s.delete(s.newSpace("a", ""))
		moveAll("root")
		s.createSpace("a", "root", "pods", "3")
		moveAll("a")
		setParent("a")
		s.delete(s.newSpace("b", ""))
		s.createSpace("b", "root", "pods", "3")
	}
	before := created.Load()
	s.eventually(func(c *assert.CollectT) { assert.Greater(c, created.Load(), before+10) })
	require.LessOrEqual(t, stop(), 4)
}

// After the root of a tree was renamed, the operator reports which objects of the old name remain, and a prune by both
// names deletes them.
func TestPolicySpaceReportsObjectsOfARenamedRoot(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	tree := func(root string) string {
		files := fstest.MapFS{}
		for path, content := range map[string]string{
			"eng/quota.yaml":          "{apiVersion: v1, kind: ResourceQuota, metadata: {name: quota}, spec: {hard: {pods: 3}}}",
			"eng/dev/namespace.yaml":  "{apiVersion: v1, kind: Namespace, metadata: {name: dev}}",
			"eng/prod/namespace.yaml": "{apiVersion: v1, kind: Namespace, metadata: {name: prod}}",
		} {
			files[path] = &fstest.MapFile{Data: []byte(content)}
		}
		result, err := hierarchy.Load(files, root)
		require.NoError(t, err)
		require.Empty(t, result.Violations)
		objects, err := result.Tree.Compile(v1alpha1.AuthoritativeDelete)
		require.NoError(t, err)
		var all strings.Builder
		for _, object := range objects {
			data, err := json.Marshal(object)
			require.NoError(t, err)
			all.Write(data)
			all.WriteString("\n---\n")
		}
		return all.String()
	}
	apply := func(root string, more ...string) {
		t.Helper()
		_, err := s.kubectl(t.Context(), tree(root), append([]string{"apply", "-f", "-"}, more...)...)
		require.NoError(t, err)
	}
	apply("old")
	for _, ns := range []string{"dev", "prod"} {
		s.eventually(func(c *assert.CollectT) {
			found := &corev1.Namespace{}
			if assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: ns}, found)) {
				assert.Equal(c, []string{"eng", "old"}, hierarchy.SpacesOf(found))
			}
		})
	}
	apply("new")
	s.eventually(func(c *assert.CollectT) {
		space := &v1alpha1.PolicySpace{}
		if assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "old"}, space)) {
			ready := apimeta.FindStatusCondition(space.Status.Conditions, v1alpha1.PolicySpaceReady)
			if assert.NotNil(c, ready) {
				assert.Equal(c, "Empty", ready.Reason)
				assert.Contains(c, ready.Message,
					"kubectl delete policyspaces,namespacetemplates,clusterroles,clusterrolebindings -l policy.nstpl.dev/tree=old")
			}
		}
	})
	apply("new", "--prune", "-l", "policy.nstpl.dev/tree in (old,new)",
		"--prune-allowlist=policy.nstpl.dev/v1alpha1/NamespaceTemplate",
		"--prune-allowlist=policy.nstpl.dev/v1alpha1/PolicySpace", "--prune-allowlist=core/v1/Namespace")
	left, err := s.kubectl(t.Context(), "", "get", "policyspaces,namespacetemplates,namespaces", "-l",
		"policy.nstpl.dev/tree", "-o", "name")
	require.NoError(t, err)
	require.ElementsMatch(t, []string{
		"policyspace.policy.nstpl.dev/new", "policyspace.policy.nstpl.dev/eng",
		"namespacetemplate.policy.nstpl.dev/new", "namespace/dev", "namespace/prod",
	}, strings.Fields(left))
	s.eventually(func(c *assert.CollectT) {
		space := &v1alpha1.PolicySpace{}
		if assert.NoError(c, s.client.Get(t.Context(), client.ObjectKey{Name: "eng"}, space)) {
			assert.Equal(c, "new/eng", space.Status.Path)
			assert.Equal(c, "pods: 0/3", space.Status.Quota)
		}
	})
}
