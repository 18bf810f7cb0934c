package integration_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/audit"
	"nstpl.dev/nstpl/test/operator"
)

// Two hundred at once: all complete, one write for each object and one for each namespace.
func TestManyNamespacesAtOnce(t *testing.T) {
	s := newScene(t, shared)
	const namespaces, each = 200, 5
	var declared []string
	for i := range each {
		declared = append(declared, configMap(fmt.Sprintf("settings-%d", i), "$(NAMESPACE)"))
	}
	template := s.declare("defaults", documents(declared...))
	require.NoError(t, together(namespaces, func(i int) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: s.name(fmt.Sprint(i)), Labels: map[string]string{sceneLabel: s.id},
		}}
		return s.client.Create(t.Context(), ns)
	}))
	s.eventually(func(c *assert.CollectT) {
		list := &corev1.NamespaceList{}
		assert.NoError(c, s.client.List(t.Context(), list, client.MatchingLabels{sceneLabel: s.id}))
		populated := 0
		for i := range list.Items {
			if populatedCondition(&list.Items[i]).Status == corev1.ConditionTrue {
				populated++
			}
		}
		assert.Equal(c, namespaces, populated)
	})
	s.status(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: namespaces, Populated: namespaces}, status.Namespaces)
	})
	require.Equal(t, map[string]int{"patch configmaps": namespaces * each, "patch namespaces/status": namespaces},
		audit.Count(s.writesSince(0, func(r request) bool {
			return strings.HasPrefix(r.ObjectRef.Namespace, s.name(""))
		})))
}

// together does n things at the same time.
func together(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = do(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// A namespace may go at any moment, and come back at once under its name: it is another one then.
func TestNamespaceDeletedAndRecreated(t *testing.T) {
	t.Parallel()
	s := newScene(t, shared)
	template := s.declare("defaults", documents(configMap("a", "$(CREATOR)"), configMap("b", "v"), configMap("c", "v")))
	const names, times = 6, 4
	t.Run("lives", func(t *testing.T) {
		for i := range names {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				s := &scene{world: s.world, t: t, id: s.id}
				random := rand.New(rand.NewPCG(1, uint64(i)))
				for life := range times {
					ns := s.recreate(fmt.Sprint(i), creator(fmt.Sprintf("user %d", life)))
					if life == times-1 || random.IntN(2) == 0 { // otherwise it goes while it is being populated
						s.populated(ns)
						s.holds(ns, documents(configMap("a", fmt.Sprintf("user %d", life)), configMap("b", "v"),
							configMap("c", "v")))
					}
					if life < times-1 {
						s.delete(ns)
					}
				}
			})
		}
	})
	s.status(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: names, Populated: names}, status.Namespaces)
		assert.Empty(c, status.Failures)
	})
}

// recreate creates a namespace as soon as its name is free.
func (s *scene) recreate(short string, change func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	var created *corev1.Namespace
	s.eventuallyWithin(time.Minute, func(c *assert.CollectT) {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: s.name(short), Labels: map[string]string{sceneLabel: s.id},
		}}
		change(ns)
		if assert.NoError(c, s.create(ns)) {
			created = ns
		}
	})
	return created
}

// rested waits until an operator that was just started has looked at everything and has nothing left to do. It returns
// what tells the writes that this took from all others.
func (s *scene) rested(round int) func(request) bool {
	s.t.Helper()
	list := &corev1.NamespaceList{}
	require.NoError(s.t, s.client.List(s.t.Context(), list))
	s.eventually(func(c *assert.CollectT) {
		looks, _, err := s.operator.Metric(s.t.Context(), "controller_runtime_reconcile_total",
			`controller="namespace"`)
		assert.NoError(c, err)
		assert.GreaterOrEqual(c, int(looks), len(list.Items))
		for _, name := range []string{"workqueue_depth", "controller_runtime_active_workers"} {
			busy, _, err := s.operator.Metric(s.t.Context(), name)
			assert.NoError(c, err)
			assert.Zero(c, busy, name)
		}
	})
	// The status of templates is written with a delay, in the order in which it is due. That of a later template is
	// written after all others, but for what its own creation brings about.
	marker := s.declare(fmt.Sprintf("rested-%d", round), configMap("marker", "v"),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = selector(restedLabel, fmt.Sprint(round))
		})
	for i := range int32(2) {
		s.populatedNamespace(fmt.Sprintf("rested-%d-%d", round, i), func(ns *corev1.Namespace) {
			ns.Labels = map[string]string{restedLabel: fmt.Sprint(round)}
		})
		s.status(marker, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			assert.Equal(c, 1+i, status.Namespaces.Populated)
		})
	}
	return func(r request) bool {
		return !strings.HasPrefix(r.ObjectRef.Namespace, marker.Name) && r.ObjectRef.Name != marker.Name
	}
}

// restedLabel selects the namespaces that rested creates.
const restedLabel = "rested"

func (s *scene) now() int {
	s.t.Helper()
	point, err := s.audit.Now()
	require.NoError(s.t, err)
	return point
}

// What happens while nobody looks is found at the next start; what is right is not written again.
func TestRestart(t *testing.T) {
	t.Parallel()
	s := newScene(t, ownWorld(t))
	correct := s.declare("correct", policyKinds)
	reported := s.declare("reported", documents(configMap("left", "v"), configMap("deleted", "v")), report)
	broken := s.declare("broken", configMap("kept-by-broken", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.FailurePolicy = v1alpha1.FailureIgnore
	})
	withdrawn := s.declare("withdrawn", configMap("withdrawn", "v"), deletes)
	overridden := s.declare("a-overridden", configMap("left", "never"))
	orphaned := s.declare("orphaned", configMap("orphaned", "v"))
	ns := s.namespace("a", creator("jane"))
	theirs := parse(t, documents(configMap("theirs", "x"), configMap("adopted", "v")))
	for _, object := range theirs {
		object.SetNamespace(ns.Name)
		require.NoError(t, s.client.Create(t.Context(), object))
	}
	adopting := s.declare("adopting", documents(configMap("adopted", "v"), configMap("dropped", "v")))
	s.populated(ns)
	s.holds(ns, documents(rendered(ns.Name), configMap("left", "v"), configMap("adopted", "v"),
		configMap("dropped", "v")))
	s.populatedNamespace("b")

	// Drift that is reported, and a template that doesn't compile.
	left := s.mustStored(ns, parse(t, configMap("left", ""))[0])
	left.Object["data"] = map[string]any{"key": "theirs"}
	require.NoError(t, s.client.Update(t.Context(), left))
	s.delete(s.mustStored(ns, parse(t, configMap("deleted", ""))[0]))
	s.editUnvetted(broken, objects(t, "apiVersion: v1\nmetadata: {name: x}\n"))
	s.condition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "configmap/left drifted")
		assert.Contains(c, condition.Message, "configmap/deleted drifted")
		assert.Contains(c, condition.Message, "kind is missing")
	})
	for _, template := range []*v1alpha1.NamespaceTemplate{
		correct, reported, broken, withdrawn, overridden, orphaned, adopting,
	} {
		s.status(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			counts := status.Namespaces
			assert.Equal(c, int32(2), counts.Populated+counts.Failed+counts.Drifted, "%+v", counts)
		})
	}
	s.rested(0)

	t.Run("writes nothing", func(t *testing.T) {
		s := &scene{world: s.world, t: t, id: s.id}
		for round := range 2 {
			point := s.now()
			s.restartOperator(t)
			require.Empty(t, s.writesSince(point, s.rested(1+round)))
		}
	})

	t.Run("finds what happened while it was down", func(t *testing.T) {
		s := &scene{world: s.world, t: t, id: s.id}
		require.NoError(t, s.operator.Kill())
		s.unguard()
		s.editUnseen(adopting, func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Templates = raw(t, configMap("new", "v"))
		})
		s.editUnseen(overridden, objects(t, ""))
		s.delete(withdrawn)
		s.delete(orphaned)
		settings := s.mustStored(ns, parse(t, configMap("settings", ""))[0])
		require.NoError(t, unstructured.SetNestedField(settings.Object, "elsewhere", "data", "namespace"))
		require.NoError(t, s.client.Update(t.Context(), settings))
		s.delete(s.mustStored(ns, parse(t, policyKinds)[0]))
		born := s.namespace("born")
		point := s.now()
		require.NoError(t, s.startOperator(t.Context()))

		s.gone(withdrawn)
		s.populated(born)
		s.holds(born,
			documents(rendered(born.Name), configMap("left", "v"), configMap("deleted", "v"), configMap("new", "v")))
		s.holds(ns, documents(rendered(ns.Name), configMap("left", "theirs"), configMap("new", "v"),
			configMap("orphaned", "v")))
		s.lacks(ns, documents(configMap("dropped", ""), configMap("withdrawn", ""), configMap("deleted", "")))
		for _, object := range theirs {
			require.Equal(t, object.GetUID(), s.mustStored(ns, object).GetUID(), "%s is not ours to delete",
				object.GetName())
		}
		s.drifted(reported, 1)
		counted := s.rested(3)
		require.Equal(t, map[string]int{
			"patch configmaps": 2, "patch networkpolicies": 1, "delete configmaps": 2, "patch namespaces/status": 1,
		}, audit.Count(s.writesSince(point, func(r request) bool {
			return counted(r) && r.ObjectRef.Namespace == ns.Name
		})))
	})
}

// Killed at any point of a storm, the operator ends where it would have ended, and has not written twice what was
// right.
func TestKilledInAStorm(t *testing.T) {
	t.Parallel()
	s := newScene(t, ownWorld(t))
	random := rand.New(rand.NewPCG(2, 3))
	version := func(v int) string {
		return documents(configMap("common", fmt.Sprint(v)), configMap("same", "$(NAMESPACE)"),
			configMap(fmt.Sprintf("only-%d", v), "v"))
	}
	const rounds, perRound = 8, 15
	template := s.template("defaults", version(0))
	require.NoError(t, s.client.Create(t.Context(), template))
	var all []*corev1.Namespace
	for round := range rounds {
		point := s.now()
		s.editUnseen(template, objects(t, version(round)))
		for i := range perRound {
			all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: s.name(fmt.Sprintf("%d-%d", round, i)), Labels: map[string]string{sceneLabel: s.id},
			}})
		}
		created := make(chan error, 1)
		go func() {
			created <- together(perRound, func(i int) error {
				return s.client.Create(t.Context(), all[round*perRound+i])
			})
		}()
		until := 1 + random.IntN(3*perRound)
		s.eventually(func(c *assert.CollectT) {
			assert.GreaterOrEqual(c, len(s.writesSince(point, func(request) bool { return true })), until)
		})
		require.NoError(t, s.operator.Kill())
		require.NoError(t, <-created)
		require.NoError(t, s.startOperator(t.Context()))
	}
	s.status(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, template.Generation, status.ObservedGeneration)
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: int32(len(all)), Populated: int32(len(all))},
			status.Namespaces)
	})
	list := &corev1.ConfigMapList{}
	require.NoError(t,
		s.client.List(t.Context(), list, client.MatchingLabels{v1alpha1.TemplateNameLabel: template.Name}))
	require.Len(t, list.Items, 3*len(all), "what earlier versions declared is gone")
	for _, ns := range all {
		for _, object := range parse(t, version(rounds-1)) {
			require.NoError(t,
				s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: object.GetName()},
					&corev1.ConfigMap{}))
		}
		s.populated(ns)
	}
	s.rested(0)
	point := s.now()
	s.restartOperator(t)
	require.Empty(t, s.writesSince(point, s.rested(1)))
}

// leaseTakeover is longer than a Lease is valid whose holder does not renew it.
const leaseTakeover = 45 * time.Second

// Of two replicas one works; when it dies the other one takes over, and when it is stopped at once, after who asked it
// was led elsewhere.
func TestLeaderElection(t *testing.T) {
	t.Parallel()
	w, err := newWorld(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, w.end()) })
	require.NoError(t, w.startOperator(t.Context(), "--leader-elect=true"))
	s := newScene(t, w)
	s.declare("defaults", documents(configMap("a", "v"), configMap("b", "v")))
	takeOver := func(end func(*operator.Process) error, short string) {
		second, err := startOperator(t.Context(), w, "--leader-elect=true", "--shutdown-delay-duration=1s")
		require.NoError(t, err)
		before := s.populatedNamespace(short + "-before")
		require.Equal(t, map[string]int{"patch configmaps": 2, "patch namespaces/status": 1}, s.writes(before))
		ns := s.namespace(short + "-meanwhile")
		require.NoError(t, end(w.operator))
		w.operator = second
		s.eventuallyWithin(leaseTakeover, func(c *assert.CollectT) {
			found := &corev1.Namespace{}
			assert.NoError(c, w.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
			assert.Equal(c, corev1.ConditionTrue, populatedCondition(found).Status)
		})
		// What was under way when the leader ended may be asked for again; what comes then is not.
		after := s.populatedNamespace(short + "-after")
		require.Equal(t, map[string]int{"patch configmaps": 2, "patch namespaces/status": 1}, s.writes(after))
	}
	takeOver((*operator.Process).Kill, "killed")
	takeOver(func(o *operator.Process) error { return leave(t.Context(), o) }, "stopped")
}

// leave ends a replica that is asked all the time: who has a connection to it is led elsewhere before it is closed, and
// what is asked meanwhile is answered.
func leave(ctx context.Context, o *operator.Process) error {
	const clients = 8
	begun := make(chan struct{}, clients)
	asked := make(chan error, clients)
	for range clients {
		go func() { asked <- askUntilLedElsewhere(ctx, o.Webhooks, begun) }()
	}
	for range clients {
		select {
		case <-begun:
		case err := <-asked:
			return err
		}
	}
	errs := []error{o.Stop()}
	for range clients {
		errs = append(errs, <-asked)
	}
	return errors.Join(errs...)
}

// askUntilLedElsewhere asks for decisions on one connection until it is to be used no more. It tells when it has begun.
func askUntilLedElsewhere(ctx context.Context, address string, begun chan<- struct{}) error {
	transport := &http.Transport{MaxConnsPerHost: 1, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is this test's
	defer transport.CloseIdleConnections()
	for i := 0; ; i++ {
		// Like the API server's, a request that can't be sent again if the connection breaks.
		body := struct{ io.Reader }{strings.NewReader(`{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {"uid": "1"}}`)}
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+address+"/validate", body)
		if err != nil {
			return err
		}
		request.Header.Set("Content-Type", "application/json")
		response, err := transport.RoundTrip(request)
		if err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		answer, err := io.ReadAll(response.Body)
		if err := errors.Join(err, response.Body.Close()); err != nil {
			return err
		}
		if !strings.Contains(string(answer), `"allowed":true`) {
			return fmt.Errorf("the answer to request %d is %s: %s", i, response.Status, answer)
		}
		if i == 0 {
			begun <- struct{}{}
		}
		if response.Close {
			return nil
		}
	}
}
