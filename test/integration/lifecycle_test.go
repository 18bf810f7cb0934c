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
	"nstpl.dev/nstpl/test/marks"
	"nstpl.dev/nstpl/test/operator"
)

// Two hundred namespaces that are created at once are all populated, with one write for each object and one for each
// namespace.
func TestManyNamespacesArePopulatedWithOneWritePerObject(t *testing.T) {
	s := newScope(t, sharedCluster)
	const namespaces, each = 200, 5
	var declared []string
	for i := range each {
		declared = append(declared, configMap(fmt.Sprintf("settings-%d", i), "$(NAMESPACE)"))
	}
	template := s.createTemplate("defaults", documents(declared...))
	require.NoError(t, concurrently(namespaces, func(i int) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: s.name(fmt.Sprint(i)), Labels: map[string]string{testLabel: s.id},
		}}
		return s.client.Create(t.Context(), ns)
	}))
	s.eventually(func(c *assert.CollectT) {
		list := &corev1.NamespaceList{}
		assert.NoError(c, s.client.List(t.Context(), list, client.MatchingLabels{testLabel: s.id}))
		populated := 0
		for i := range list.Items {
			if populatedCondition(&list.Items[i]).Status == corev1.ConditionTrue {
				populated++
			}
		}
		assert.Equal(c, namespaces, populated)
	})
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: namespaces, Updated: namespaces, Populated: namespaces}, status.Namespaces)
	})
	require.Equal(t, map[string]int{"patch configmaps": namespaces * each, "patch namespaces/status": namespaces},
		audit.Count(s.writesSince(0, func(r request) bool {
			return strings.HasPrefix(r.ObjectRef.Namespace, s.name(""))
		})))
}

// A namespace can be deleted at any moment and created again under the same name.
func TestRecreatedNamespacesArePopulated(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("defaults", documents(configMap("a", "$(CREATOR)"), configMap("b", "v"), configMap("c", "v")))
	const names, times = 6, 4
	t.Run("lives", func(t *testing.T) {
		for i := range names {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				s := s.withT(t)
				random := rand.New(rand.NewPCG(1, uint64(i)))
				for life := range times {
					ns := recreateNamespace(s, fmt.Sprint(i), withCreator(fmt.Sprintf("user %d", life)))
					if life == times-1 || random.IntN(2) == 0 { // otherwise it is deleted while it is being populated
						s.waitPopulated(ns)
						s.waitPresent(ns, documents(configMap("a", fmt.Sprintf("user %d", life)), configMap("b", "v"),
							configMap("c", "v")))
					}
					if life < times-1 {
						s.delete(ns)
					}
				}
			})
		}
	})
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: names, Updated: names, Populated: names}, status.Namespaces)
		assert.Empty(c, status.Failures)
	})
}

// waitIdleAfterStart waits until an operator that was just started has reconciled everything. It returns a function
// that excludes the writes that the wait itself caused.
func waitIdleAfterStart(s *testScope, round int) func(request) bool {
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
	// The status of templates is written with a delay, in the order in which it is due. The status of a new template is
	// therefore written after all others.
	marker := s.createTemplate(fmt.Sprintf("rested-%d", round), configMap("marker", "v"),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = selectLabel(idleLabel, fmt.Sprint(round))
		})
	for i := range int32(2) {
		s.createPopulatedNamespace(fmt.Sprintf("rested-%d-%d", round, i), func(ns *corev1.Namespace) {
			ns.Labels = map[string]string{idleLabel: fmt.Sprint(round)}
		})
		s.waitTemplateStatus(marker, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			assert.Equal(c, 1+i, status.Namespaces.Populated)
		})
	}
	return func(r request) bool {
		// The request that creates the revision of the marker does not contain its name.
		return !strings.HasPrefix(r.ObjectRef.Namespace, marker.Name) && r.ObjectRef.Name != marker.Name &&
			r.ObjectRef.Name != v1alpha1.SelectorsConfigMap && // has the selector of the marker
			(r.Verb != "create" || r.ObjectRef.Resource != "controllerrevisions")
	}
}

// idleLabel is the label of the namespaces that waitIdleAfterStart creates.
const idleLabel = "rested"

// restartScope has templates of all kinds, and a namespace in which another client created objects.
type restartScope struct {
	*testScope
	correct, reported, broken, withdrawn, overridden, orphaned, adopting *v1alpha1.NamespaceTemplate

	ns     *corev1.Namespace
	theirs []*unstructured.Unstructured
}

func (r restartScope) withT(t *testing.T) restartScope {
	t.Helper()
	r.testScope = r.testScope.withT(t)
	return r
}

func newRestartScope(t *testing.T) restartScope {
	t.Helper()
	s := newScope(t, borrowCluster(t))
	r := restartScope{
		testScope:  s,
		correct:    s.createTemplate("correct", policyKinds),
		reported:   s.createTemplate("reported", documents(configMap("left", "v"), configMap("deleted", "v")), reportsDrift),
		broken:     s.createTemplate("broken", configMap("kept-by-broken", "v"), ignoresFailures),
		withdrawn:  s.createTemplate("withdrawn", configMap("withdrawn", "v"), deletesObjects),
		overridden: s.createTemplate("a-overridden", configMap("left", "never")),
		orphaned:   s.createTemplate("orphaned", configMap("orphaned", "v")),
		ns:         s.createNamespace("a", withCreator("jane")),
		theirs:     parseYAML(t, documents(configMap("theirs", "x"), configMap("adopted", "v"))),
	}
	for _, object := range r.theirs {
		object.SetNamespace(r.ns.Name)
		require.NoError(t, s.client.Create(t.Context(), object))
	}
	r.adopting = s.createTemplate("adopting", documents(configMap("adopted", "v"), configMap("dropped", "v")))
	s.waitPopulated(r.ns)
	s.waitPresent(r.ns, documents(storedPolicyKinds(r.ns.Name), configMap("left", "v"), configMap("adopted", "v"),
		configMap("dropped", "v")))
	s.createPopulatedNamespace("b")
	return r
}

// driftAndBreak lets one template only report drift, and another one be invalid. It waits until all statuses say so.
func (r restartScope) driftAndBreak() {
	r.t.Helper()
	left := r.mustGet(r.ns, parseYAML(r.t, configMap("left", ""))[0])
	left.Object["data"] = map[string]any{"key": "theirs"}
	require.NoError(r.t, r.client.Update(r.t.Context(), left))
	r.delete(r.mustGet(r.ns, parseYAML(r.t, configMap("deleted", ""))[0]))
	r.updateTemplateUnvetted(r.broken, withObjects(r.t, "apiVersion: v1\nmetadata: {name: x}\n"))
	r.waitCondition(r.ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "configmap/left: drifted")
		assert.Contains(c, condition.Message, "configmap/deleted: drifted")
	})
	for _, template := range []*v1alpha1.NamespaceTemplate{
		r.correct, r.reported, r.broken, r.withdrawn, r.overridden, r.orphaned, r.adopting,
	} {
		r.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
			counts := status.Namespaces
			assert.Equal(c, int32(2), counts.Populated+counts.Failed+counts.Drifted, "%+v", counts)
		})
	}
	waitIdleAfterStart(r.testScope, 0)
}

// changeEverything changes and deletes templates and objects while the operator is down.
func (r restartScope) changeEverything() {
	r.t.Helper()
	r.disableVetting()
	r.patchTemplate(r.adopting, withObjects(r.t, configMap("new", "v")))
	r.patchTemplate(r.overridden, withObjects(r.t, ""))
	r.delete(r.withdrawn)
	r.delete(r.orphaned)
	settings := r.mustGet(r.ns, parseYAML(r.t, configMap("settings", ""))[0])
	require.NoError(r.t, unstructured.SetNestedField(settings.Object, "elsewhere", "data", "namespace"))
	require.NoError(r.t, r.client.Update(r.t.Context(), settings))
	r.delete(r.mustGet(r.ns, parseYAML(r.t, policyKinds)[0]))
}

// waitCorrected waits until the operator has handled the changes, also in a namespace that is new.
func (r restartScope) waitCorrected(born *corev1.Namespace) {
	r.t.Helper()
	r.waitDeleted(r.withdrawn)
	r.waitPopulated(born)
	r.waitPresent(born, documents(storedPolicyKinds(born.Name), configMap("left", "v"), configMap("deleted", "v"),
		configMap("new", "v")))
	r.waitPresent(r.ns, documents(storedPolicyKinds(r.ns.Name), configMap("left", "theirs"), configMap("new", "v"),
		configMap("orphaned", "v")))
	r.waitAbsent(r.ns, documents(configMap("dropped", ""), configMap("withdrawn", ""), configMap("deleted", "")))
	for _, object := range r.theirs {
		require.Equal(r.t, object.GetUID(), r.mustGet(r.ns, object).GetUID(),
			"%s was created by another client and must not be deleted", object.GetName())
	}
	r.waitDriftedNamespaces(r.reported, 1)
}

// An operator that starts corrects what changed while it was down, and does not write objects that are as declared.
func TestRestartWritesOnlyChanges(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	r := newRestartScope(t)
	r.driftAndBreak()

	t.Run("writes nothing", func(t *testing.T) {
		r := r.withT(t)
		for round := range 2 {
			point := r.auditPosition()
			r.restartOperator(t)
			require.Empty(t, r.writesSince(point, waitIdleAfterStart(r.testScope, 1+round)))
		}
	})

	t.Run("finds what happened while it was down", func(t *testing.T) {
		r := r.withT(t)
		require.NoError(t, r.operator.Kill())
		r.changeEverything()
		born := r.createNamespace("born")
		point := r.auditPosition()
		require.NoError(t, r.startOperator(t.Context()))
		r.waitCorrected(born)
		counted := waitIdleAfterStart(r.testScope, 3)
		writes := audit.Count(r.writesSince(point, func(w request) bool {
			return counted(w) && w.ObjectRef.Namespace == r.ns.Name
		}))
		// Two templates are rolled out at the same time, and each may reach the namespace alone.
		require.LessOrEqual(t, writes["patch namespaces/status"], 3)
		delete(writes, "patch namespaces/status")
		require.Equal(t, map[string]int{
			"patch configmaps": 2, "patch networkpolicies": 1, "delete configmaps": 2,
		}, writes)
	})
}

// An operator that is killed repeatedly while namespaces are created and the template changes reaches the same state as
// an undisturbed one, and writes nothing after that.
func TestOperatorRecoversFromRepeatedKills(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	random := rand.New(rand.NewPCG(2, 3))
	version := func(v int) string {
		return documents(configMap("common", fmt.Sprint(v)), configMap("same", "$(NAMESPACE)"),
			configMap(fmt.Sprintf("only-%d", v), "v"))
	}
	const rounds, perRound = 8, 15
	template := s.newTemplate("defaults", version(0))
	require.NoError(t, s.client.Create(t.Context(), template))
	var all []*corev1.Namespace
	for round := range rounds {
		point := s.auditPosition()
		s.patchTemplate(template, withObjects(t, version(round)))
		for i := range perRound {
			all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				Name: s.name(fmt.Sprintf("%d-%d", round, i)), Labels: map[string]string{testLabel: s.id},
			}})
		}
		created := make(chan error, 1)
		go func() {
			created <- concurrently(perRound, func(i int) error {
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
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, template.Generation, status.ObservedGeneration)
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: int32(len(all)), Updated: int32(len(all)), Populated: int32(len(all))},
			status.Namespaces)
	})
	list := &corev1.ConfigMapList{}
	require.NoError(t,
		s.client.List(t.Context(), list, client.MatchingLabels{v1alpha1.TemplateNameLabel: template.Name}))
	require.Len(t, list.Items, 3*len(all), "objects of earlier versions of the template must be deleted")
	for _, ns := range all {
		for _, object := range parseYAML(t, version(rounds-1)) {
			require.NoError(t,
				s.client.Get(t.Context(), client.ObjectKey{Namespace: ns.Name, Name: object.GetName()},
					&corev1.ConfigMap{}))
		}
		s.waitPopulated(ns)
	}
	waitIdleAfterStart(s, 0)
	point := s.auditPosition()
	s.restartOperator(t)
	require.Empty(t, s.writesSince(point, waitIdleAfterStart(s, 1)))
}

// leaseTakeover is longer than the time for which a Lease is valid without renewal.
const leaseTakeover = 45 * time.Second

// Only one of two replicas writes. The other one takes over when the leader dies, and at once when the leader is
// stopped, and requests are answered all the time.
func TestStandbyTakesOverFromTheLeader(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowCluster(t, "--leader-elect=true")
	s := newScope(t, cluster)
	s.createTemplate("defaults", documents(configMap("a", "v"), configMap("b", "v")))
	takeOver := func(end func(*operator.Process) error, short string) {
		second, err := cluster.startReplica(t.Context(), "--leader-elect=true", "--shutdown-delay-duration=1s")
		require.NoError(t, err)
		before := s.createPopulatedNamespace(short + "-before")
		require.Equal(t, map[string]int{"patch configmaps": 2, "patch namespaces/status": 1}, s.countWrites(before))
		ns := s.createNamespace(short + "-meanwhile")
		require.NoError(t, end(cluster.operator))
		cluster.operator = second
		s.eventuallyWithin(leaseTakeover, func(c *assert.CollectT) {
			found := &corev1.Namespace{}
			assert.NoError(c, cluster.client.Get(t.Context(), client.ObjectKeyFromObject(ns), found))
			assert.Equal(c, corev1.ConditionTrue, populatedCondition(found).Status)
		})
		// The new leader may repeat the last writes of the previous one, but not later ones.
		after := s.createPopulatedNamespace(short + "-after")
		require.Equal(t, map[string]int{"patch configmaps": 2, "patch namespaces/status": 1}, s.countWrites(after))
	}
	takeOver((*operator.Process).Kill, "killed")
	takeOver(func(o *operator.Process) error { return stopUnderRequests(t.Context(), o) }, "stopped")
}

// stopUnderRequests stops a replica while clients send it requests. The replica answers all of them, and asks the
// clients to close their connections before it ends.
func stopUnderRequests(ctx context.Context, o *operator.Process) error {
	const clients = 8
	begun := make(chan struct{}, clients)
	asked := make(chan error, clients)
	for range clients {
		go func() { asked <- sendReviewsUntilConnectionCloses(ctx, o.Webhooks, begun) }()
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

// sendReviewsUntilConnectionCloses sends reviews on one connection until the server asks to close it. It signals its
// first answer.
func sendReviewsUntilConnectionCloses(ctx context.Context, address string, begun chan<- struct{}) error {
	transport := &http.Transport{MaxConnsPerHost: 1, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the certificate is this test's
	defer transport.CloseIdleConnections()
	for i := 0; ; i++ {
		// Like for the API server's requests, the body cannot be read again for another attempt.
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

// recreateNamespace creates a namespace as soon as no other of that name exists.
func recreateNamespace(s *testScope, short string, change func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	var created *corev1.Namespace
	s.eventually(func(c *assert.CollectT) {
		ns := s.newNamespace(short, change)
		if assert.NoError(c, s.createAsCreator(ns)) {
			created = ns
		}
	})
	return created
}
