package integration_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
	"nstpl.dev/nstpl/test/marks"
)

// waitPending waits until exactly these initializers of a namespace are pending.
func waitPending(s *testScope, ns *corev1.Namespace, entries ...string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := &corev1.Namespace{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(ns), found)) {
			assert.Equal(c, entries, initialize.Pending(found))
			assert.True(c, initialize.Initializing(found))
		}
	})
}

// expectStillPending fails unless exactly these initializers are pending after the operator has reconciled the
// namespace once more.
func expectStillPending(s *testScope, ns *corev1.Namespace, entries ...string) {
	s.t.Helper()
	// The operator removes unknown initializers when it reconciles the namespace.
	setPending(s, ns, append(entries, s.name("nobody"))...)
	waitPending(s, ns, entries...)
}

func setPending(s *testScope, ns *corev1.Namespace, entries ...string) {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"labels":      map[string]any{v1alpha1.InitializingLabel: "true"},
		"annotations": map[string]any{v1alpha1.PendingAnnotation: strings.Join(entries, ",")},
	}})
	require.NoError(s.t, err)
	s.patchNamespace(ns, string(body))
}

// newInitializerUser returns clients of a user with the permissions that an initializer's controller needs.
func newInitializerUser(s *testScope, short string) kubernetes.Interface {
	s.t.Helper()
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: s.name(short)},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "update"},
		}},
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), role))
	s.bindClusterRole(s.name(short), role.Name)
	s.bindClusterRole(s.name(short), "nstpl-initialize")
	return s.impersonate(s.t, s.name(short))
}

// finishInitializer removes an initializer from the pending ones of a namespace, as its controller would.
func finishInitializer(s *testScope,
	clients kubernetes.Interface, ns *corev1.Namespace, short string, options metav1.UpdateOptions,
) error {
	namespaces := clients.CoreV1().Namespaces()
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		found, err := namespaces.Get(s.t.Context(), ns.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var left []string
		for _, entry := range initialize.Pending(found) {
			if entry != s.name(short) {
				left = append(left, entry)
			}
		}
		found.Annotations[v1alpha1.PendingAnnotation] = strings.Join(left, ",")
		_, err = namespaces.Update(s.t.Context(), found, options)
		return err
	})
}

// timeoutNotes returns the notes of a namespace's Events about initializers that timed out.
func timeoutNotes(s *testScope, ns *corev1.Namespace) []string {
	s.t.Helper()
	events := &eventsv1.EventList{}
	require.NoError(s.t, s.client.List(s.t.Context(), events, client.InNamespace(ns.Name)))
	var notes []string
	for _, event := range events.Items {
		if event.Reason == "InitializerTimedOut" {
			notes = append(notes, event.Note)
		}
	}
	return notes
}

func TestInitializationEndsWithOneWrite(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", configMap("settings", "v"))
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	once := map[string]int{"patch configmaps": 1, "patch namespaces/status": 1}
	var earlier []*corev1.Namespace
	for i := range 5 {
		ns := s.createNamespace(fmt.Sprint(i))
		require.True(t, initialize.Initializing(ns))
		require.Equal(t, []string{v1alpha1.TemplateInitializer}, initialize.Pending(ns))
		s.waitInitialized(ns)
		s.waitPopulated(ns)
		earlier = append(earlier, ns)
	}
	for _, ns := range earlier {
		require.Equal(t, once, s.countWrites(ns))
	}
}

func TestInitializersCanFinishConcurrently(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", configMap("settings", "v"))
	shorts := []string{"network", "dns"}
	s.createInitializers(3600, v1alpha1.FailureFail, shorts...)
	var users []kubernetes.Interface
	for _, short := range shorts {
		users = append(users, newInitializerUser(s, short))
	}
	probe := s.createNamespace("probe-rights")
	for i, short := range shorts {
		s.eventually(func(c *assert.CollectT) { // until the API server knows their permissions
			assert.NoError(c,
				finishInitializer(s, users[i], probe, short, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}}))
		})
	}
	stranger := s.impersonate(t, s.name("stranger"))
	s.bindClusterRole(s.name("stranger"), s.name("network"))
	s.eventually(func(c *assert.CollectT) {
		assert.ErrorContains(c, finishInitializer(s, stranger, probe, "dns", metav1.UpdateOptions{}),
			"ask for the verb initialize on namespaces")
	})
	for round := range 10 {
		ns := s.createNamespace(fmt.Sprint(round))
		require.ElementsMatch(t, []string{v1alpha1.TemplateInitializer, s.name("network"), s.name("dns")},
			initialize.Pending(ns))
		require.NoError(t, concurrently(len(shorts), func(i int) error {
			return finishInitializer(s, users[i], ns, shorts[i], metav1.UpdateOptions{})
		}))
		s.waitInitialized(ns)
		s.waitPopulated(ns)
		require.Equal(t, 1, s.countWrites(ns)["patch configmaps"])
	}

	one := s.createNamespace("one")
	waitPending(s, one, s.name("network"), s.name("dns"))
	s.waitPopulated(one)
	require.NoError(t, finishInitializer(s, users[0], one, "network", metav1.UpdateOptions{}))
	expectStillPending(s, one, s.name("dns"))
	require.NoError(t, finishInitializer(s, users[1], one, "dns", metav1.UpdateOptions{}))
	s.waitInitialized(one)
	require.Empty(t, timeoutNotes(s, one))
}

func TestInitializersAreAwaitedWithoutTemplates(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createInitializers(3600, v1alpha1.FailureFail, "network")
	ns := s.createNamespace("a")
	expectStillPending(s, ns, s.name("network"))
	s.finishInitialization(ns)
	s.waitInitialized(ns)
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Zero(c, condition, "no template selects the namespace")
	})
}

func TestInitializerTimeoutsFollowTheFailurePolicy(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.createTemplate("defaults", configMap("settings", "v"))
	s.createInitializers(1, v1alpha1.FailureIgnore, "ignored")
	ignored := s.createNamespace("ignored")
	s.waitInitialized(ignored)
	s.waitPopulated(ignored)
	s.waitEvent(ignored, corev1.EventTypeWarning, "InitializerTimedOut",
		"initializer "+s.name("ignored")+" did not finish within 1 s; failurePolicy Ignore")

	s.createInitializers(1, v1alpha1.FailureFail, "required")
	required := s.createNamespace("required")
	waitPending(s, required, s.name("required"))
	s.waitEvent(required, corev1.EventTypeWarning, "InitializerTimedOut",
		"initializer "+s.name("required")+" did not finish within 1 s; failurePolicy Fail")
	expectStillPending(s, required, s.name("required"))

	s.eventually(func(c *assert.CollectT) { assert.Len(c, timeoutNotes(s, required), 2) })
	s.restartOperator(t)
	expectStillPending(s, required, s.name("required"))
	require.Len(t, timeoutNotes(s, required), 2, "one Event for each initializer")
	require.Len(t, timeoutNotes(s, ignored), 1)
	s.finishInitialization(required)
	s.waitInitialized(required)
}

func TestInitializationFollowsConfigurationChanges(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", configMap("settings", "v"))
	configuration := s.createInitializers(3600, v1alpha1.FailureFail, "network", "dns")
	ns := s.createNamespace("a")
	waitPending(s, ns, s.name("network"), s.name("dns"))
	changed := configuration.DeepCopy()
	changed.Initializers = changed.Initializers[:1]
	require.NoError(t, s.client.Patch(t.Context(), changed, client.MergeFrom(configuration)))
	waitPending(s, ns, s.name("network"))
	// A namespace waits for its initializer even if the initializer no longer selects it.
	s.patchNamespace(ns, fmt.Sprintf(`{"metadata": {"labels": {%q: "none"}}}`, testLabel))
	expectStillPending(s, ns, s.name("network"))
	s.delete(configuration)
	s.waitInitialized(ns)
}

func TestInitializationConfigurationReportsAccepted(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	configuration := s.createInitializers(3600, v1alpha1.FailureFail, "network")
	accepted := func(status metav1.ConditionStatus, message string) {
		t.Helper()
		s.eventually(func(c *assert.CollectT) {
			found := &v1alpha1.NamespaceInitializationConfiguration{}
			if !assert.NoError(c, s.client.Get(t.Context(), client.ObjectKeyFromObject(configuration), found)) {
				return
			}
			assert.Equal(c, configuration.Generation, found.Status.ObservedGeneration)
			condition := apimeta.FindStatusCondition(found.Status.Conditions, v1alpha1.InitializationAccepted)
			if assert.NotNil(c, condition) {
				assert.Equal(c, status, condition.Status)
				assert.Equal(c, configuration.Generation, condition.ObservedGeneration)
				assert.Contains(c, condition.Message, message)
			}
		})
	}
	accepted(metav1.ConditionTrue, "")
	for _, expression := range []metav1.LabelSelectorRequirement{
		{Key: "tier", Operator: metav1.LabelSelectorOpIn}, {Key: "tier", Operator: metav1.LabelSelectorOpExists},
	} {
		old := &v1alpha1.NamespaceInitializationConfiguration{}
		require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(configuration), old))
		configuration = old.DeepCopy()
		configuration.Initializers[0].NamespaceSelector.MatchExpressions = []metav1.LabelSelectorRequirement{expression}
		require.NoError(t, s.client.Patch(t.Context(), configuration, client.MergeFrom(old)))
		require.Greater(t, configuration.Generation, old.Generation)
		if expression.Operator == metav1.LabelSelectorOpIn {
			accepted(metav1.ConditionFalse, "initializer "+s.name("network")+": namespaceSelector: ")
		} else {
			accepted(metav1.ConditionTrue, "")
		}
	}
}

func TestInitializationContinuesAfterOperatorRestart(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	s.createTemplate("defaults", configMap("settings", "v"))
	s.createInitializers(3600, v1alpha1.FailureFail, "network")
	populated := s.createNamespace("populated")
	waitPending(s, populated, s.name("network"))
	s.restartOperator(t)
	expectStillPending(s, populated, s.name("network"))
	require.NoError(t, s.operator.Kill())
	// Before Kubernetes 1.36, new namespaces are not marked as initializing while the operator is down. These
	// namespaces mark themselves.
	waiting := func(ns *corev1.Namespace) {
		ns.Labels[v1alpha1.InitializingLabel] = "true"
		ns.Annotations = map[string]string{v1alpha1.PendingAnnotation: v1alpha1.TemplateInitializer + "," +
			s.name("network")}
	}
	born := s.createNamespace("born", waiting)
	finished := s.createNamespace("finished", waiting)
	s.finishInitialization(populated)
	setPending(s, finished, v1alpha1.TemplateInitializer)
	require.NoError(t, s.startOperator(t.Context()))
	s.waitInitialized(populated)
	s.waitInitialized(finished)
	s.waitPresent(finished, configMap("settings", "v"))
	waitPending(s, born, s.name("network"))
	s.waitPresent(born, configMap("settings", "v"))
	require.Equal(t, map[string]int{"patch configmaps": 1, "patch namespaces/status": 1}, s.countWrites(finished))
	s.finishInitialization(born)
	s.waitInitialized(born)
}

// A namespace whose creator sets the label is initializing only until the operator has reconciled it.
func TestInitializationRequestedByUsersEnds(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", configMap("settings", "v"))
	initializing := func(list string) func(*corev1.Namespace) {
		return func(ns *corev1.Namespace) {
			ns.Labels[v1alpha1.InitializingLabel] = "true"
			ns.Annotations = map[string]string{v1alpha1.PendingAnnotation: list}
		}
	}
	for short, change := range map[string]func(*corev1.Namespace){
		"opted-out": func(ns *corev1.Namespace) {
			initializing("namespace-template,x.example.com")(ns)
			ns.Annotations[v1alpha1.OptOutAnnotation] = "true"
		},
		"unmatched": func(ns *corev1.Namespace) {
			initializing("namespace-template")(ns)
			delete(ns.Labels, testLabel)
		},
		"label-alone": func(ns *corev1.Namespace) {
			initializing("")(ns)
			delete(ns.Labels, testLabel)
		},
		"nobodys":  initializing("x.example.com, ,y.example.com"),
		"nonsense": initializing(strings.Repeat("x,\u2028 ", 10_000)),
	} {
		ns := s.createNamespace(short, change)
		require.True(t, initialize.Initializing(ns), short)
		s.waitInitialized(ns)
	}
}

func TestInitializationWaitsForFailingObjects(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("failing", documents(failingObject, configMap("settings", "v")))
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	ns := s.createNamespace("a")
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
	})
	expectStillPending(s, ns, v1alpha1.TemplateInitializer)
	s.updateTemplate(template, withObjects(t, configMap("settings", "repaired")))
	s.waitInitialized(ns)
	s.waitPopulated(ns)
	s.waitPresent(ns, configMap("settings", "repaired"))
}

func TestInitializationIgnoresFailuresWithPolicyIgnore(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("failing", documents(failingObject, configMap("settings", "v")),
		func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.FailurePolicy = v1alpha1.FailureIgnore
		})
	s.createInitializers(3600, v1alpha1.FailureFail, "network")
	ns := s.createNamespace("a")
	waitPending(s, ns, s.name("network"))
	s.waitPopulated(ns)
	s.waitPresent(ns, configMap("settings", "v"))
	s.waitEvent(ns, corev1.EventTypeWarning, "ObjectFailed", "resourcequota/bad")
	s.finishInitialization(ns)
	s.waitInitialized(ns)
	s.waitEvent(ns, corev1.EventTypeWarning, "ObjectFailed", "resourcequota/bad")
	events := &eventsv1.EventList{}
	require.NoError(t, s.client.List(t.Context(), events, client.InNamespace(ns.Name)))
	for _, event := range events.Items {
		require.Nil(t, event.Series, "what was announced before is not announced again when the namespace opens: %s",
			event.Note)
	}
}

func TestInitializationEndsWithoutItsTemplate(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	for name, end := range map[string]func(*testScope, *v1alpha1.NamespaceTemplate){
		"deleted": func(s *testScope, template *v1alpha1.NamespaceTemplate) { s.delete(template) },
		"switched off": func(s *testScope, template *v1alpha1.NamespaceTemplate) {
			s.patchTemplate(template, disablesTemplate)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScope(t, sharedCluster)
			template := s.createTemplate("failing", failingObject)
			s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
			ns := s.createNamespace("a")
			expectStillPending(s, ns, v1alpha1.TemplateInitializer)
			end(s, template)
			s.waitInitialized(ns)
			s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
				assert.Zero(c, condition)
			})
		})
	}
}

// New namespaces initialize as soon as the API server knows a template, which may be before the operator does.
func TestInitializationMayStartBeforeTheOperatorKnowsTheTemplate(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	const rounds = 20
	initialized := 0
	for round := range rounds {
		template := s.newTemplate(fmt.Sprint("t", round), configMap("settings", "v"))
		template.Spec.Namespaces = selectLabel(testLabel, template.Name)
		require.NoError(t, s.client.Create(t.Context(), template))
		ns := s.createNamespace(fmt.Sprint("n", round), withLabel(testLabel, template.Name))
		if initialize.Initializing(ns) {
			initialized++
			s.waitInitialized(ns)
			s.mustGet(ns, parseYAML(t, configMap("settings", ""))[0])
		}
		s.waitPopulated(ns)
	}
	t.Logf("%d of %d namespaces were created as initializing", initialized, rounds)
}

func TestInitializationEndsWhenTheTemplateIsDeletedAtOnce(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	for round := range 20 {
		template := s.newTemplate(fmt.Sprint("t", round), failingObject)
		template.Spec.Namespaces = selectLabel(testLabel, template.Name)
		require.NoError(t, s.client.Create(t.Context(), template))
		ns := s.createNamespace(fmt.Sprint("n", round), withLabel(testLabel, template.Name))
		s.delete(template)
		s.waitInitialized(ns)
	}
}

func TestInitializationCanBeRestartedByAnAdministrator(t *testing.T) {
	marks.OnEveryVersion(t)
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.createTemplate("defaults", configMap("settings", "v"))
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	ns := s.createNamespace("a")
	s.waitInitialized(ns)
	setPending(s, ns, v1alpha1.TemplateInitializer)
	s.waitInitialized(ns)
	s.createInitializers(3600, v1alpha1.FailureFail, "network")
	setPending(s, ns, s.name("network"), v1alpha1.TemplateInitializer)
	waitPending(s, ns, s.name("network"))
	expectStillPending(s, ns, s.name("network"))
	s.finishInitialization(ns)
	s.waitInitialized(ns)
	s.waitPopulated(ns)
	require.Equal(t, 1, s.countWrites(ns)["patch configmaps"])
}

// The operator populates the oldest namespaces first, as far as its number of workers allows.
func TestInitializationFollowsCreationOrder(t *testing.T) {
	marks.OnEveryVersion(t)
	marks.Thorough(t)
	t.Parallel()
	const namespaces, workers = 60, 16
	s := newScope(t, borrowCluster(t))
	s.createTemplate("defaults", configMap("settings", "v"))
	s.waitPendingOnCreation(v1alpha1.TemplateInitializer)
	require.NoError(t, s.operator.Kill())
	created := map[string]int{}
	var all []*corev1.Namespace
	for i := range namespaces {
		// The order of creation is neither the order of names nor its reverse.
		ns := s.createNamespace(fmt.Sprintf("%02d", (i*37)%namespaces))
		created[ns.Name] = i
		all = append(all, ns)
	}
	point := s.auditPosition()
	require.NoError(t, s.startOperator(t.Context()))
	for _, ns := range all {
		s.waitInitialized(ns)
		s.waitPopulated(ns)
	}
	var order []int
	// A restarted operator may have to write the ConfigMap of the selectors, too.
	populates := func(r request) bool {
		_, isOurs := created[r.ObjectRef.Namespace]
		return isOurs && r.ObjectRef.Resource == "configmaps"
	}
	for _, write := range s.writesSince(point, populates) {
		order = append(order, created[write.ObjectRef.Namespace])
	}
	require.Len(t, order, namespaces)
	for at, i := range order {
		overtaken := 0
		for _, later := range order[at+1:] {
			if later < i {
				overtaken++
			}
		}
		require.Less(t, overtaken, workers, "namespace number %d was populated before older ones: %v", i, order)
	}
}
