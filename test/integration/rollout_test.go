package integration_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

const tierLabel = "rollout-tier"

// inTier labels a namespace with a tier.
func inTier(tier string) func(*corev1.Namespace) {
	return func(ns *corev1.Namespace) { ns.Labels[tierLabel] = tier }
}

// withRollout sets how a template is rolled out.
func withRollout(rollout *v1alpha1.Rollout) func(*v1alpha1.NamespaceTemplate) {
	return func(template *v1alpha1.NamespaceTemplate) { template.Spec.Rollout = rollout }
}

// continuesAfterFailures has a template reach every namespace, although some fail.
func continuesAfterFailures(template *v1alpha1.NamespaceTemplate) {
	template.Spec.Rollout = &v1alpha1.Rollout{MaxFailures: new(intstr.FromString("100%"))}
}

func waveOf(tier string, pause int32) v1alpha1.Wave {
	return v1alpha1.Wave{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{tierLabel: tier}}, PauseSeconds: pause,
	}
}

// configValues returns the value of the ConfigMap "config" in each namespace, or "" where it does not exist.
func configValues(s *testScope, namespaces []*corev1.Namespace) map[string]int {
	s.t.Helper()
	counts := map[string]int{}
	list := &corev1.ConfigMapList{}
	require.NoError(s.t, s.client.List(s.t.Context(), list, client.HasLabels{v1alpha1.TemplateNameLabel}))
	byNamespace := map[string]string{}
	for _, object := range list.Items {
		if object.Name == "config" {
			byNamespace[object.Namespace] = object.Data["key"]
		}
	}
	for _, ns := range namespaces {
		counts[byNamespace[ns.Name]]++
	}
	return counts
}

// waitValues waits until the ConfigMap "config" has each value in a number of namespaces.
func waitValues(s *testScope, namespaces []*corev1.Namespace, want map[string]int) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) { assert.Equal(c, want, configValues(s, namespaces)) })
}

// createNamespaceAfter creates namespaces until one is younger than a time, and returns that one. The API server stores
// times in whole seconds. The others are deleted.
func createNamespaceAfter(s *testScope, at metav1.Time, change ...func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	for i := 0; ; i++ {
		ns := s.createNamespace(fmt.Sprint("after", i), change...)
		if at.Before(&ns.CreationTimestamp) {
			return ns
		}
		s.delete(ns)
	}
}

func theConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func configValue(value string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: config}, data: {key: " + value + "}}"
}

// fixedValue returns an immutable ConfigMap.
func fixedValue(value string) string {
	return "{apiVersion: v1, kind: ConfigMap, metadata: {name: fixed}, immutable: true, data: {key: " + value + "}}"
}

func TestARolloutStopsWhenNamespacesFail(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("a", documents(configValue("one"), fixedValue("one")))
	var namespaces []*corev1.Namespace
	for i := range 40 {
		namespaces = append(namespaces, s.createNamespace(fmt.Sprint("n", i)))
	}
	waitValues(s, namespaces, map[string]int{"one": 40})
	s.waitRollout(template, v1alpha1.RolloutComplete)
	// The template's own object cannot be changed.
	s.updateTemplate(template, withObjects(t, documents(configValue("two"), fixedValue("two"))))
	s.waitRollout(template, v1alpha1.RolloutStopped)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		touched := configValues(s, namespaces)["two"]
		assert.Positive(c, touched)
		assert.LessOrEqual(c, touched, 16, "two batches at most, unless a coincidence of one in a million")
		assert.EqualValues(c, 40, status.Namespaces.Matched)
		assert.EqualValues(c, touched, status.Namespaces.Updated)
		assert.Positive(c, status.Namespaces.Failed)
		if assert.Len(c, status.Failures, 1) {
			assert.Equal(c, status.Namespaces.Failed, status.Failures[0].Count)
		}
		assert.Len(c, status.Revisions, 2)
		assert.Equal(c, metav1.ConditionFalse, templateCondition(status, v1alpha1.ConditionReady).Status)
		assert.Equal(c, metav1.ConditionTrue, templateCondition(status, v1alpha1.ConditionStalled).Status)
	})
	events := &eventsv1.EventList{}
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.List(t.Context(), events, client.MatchingFields{"reason": "RolloutStopped"}))
		found := false
		for _, event := range events.Items {
			found = found || event.Regarding.Name == template.Name
		}
		assert.True(c, found)
	})

	// A namespace that is created after the rollout stopped gets the revision that is in force. Times have a resolution
	// of one second.
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(template), template))
	stopped := template.Status.Revisions[0].StopTime
	s.eventually(func(c *assert.CollectT) { assert.True(c, time.Now().After(stopped.Time)) })
	late := s.createNamespace("late")
	waitValues(s, []*corev1.Namespace{late}, map[string]int{"one": 1})
	s.waitPopulated(late)

	s.updateTemplate(template, withObjects(t, configValue("one")))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	waitValues(s, append(namespaces, late), map[string]int{"one": 41})
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 41, Updated: 41, Populated: 41}, status.Namespaces)
	})
}

func TestWavesPauseAndResume(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	template := s.createTemplate("a", configValue("one"))
	var canaries, others []*corev1.Namespace
	for i := range 2 {
		canaries = append(canaries, s.createNamespace(fmt.Sprint("canary", i), inTier("canary")))
	}
	for i := range 6 {
		others = append(others, s.createNamespace(fmt.Sprint("other", i), inTier("other")))
	}
	all := append(append([]*corev1.Namespace{}, canaries...), others...)
	waitValues(s, all, map[string]int{"one": 8})
	s.waitRollout(template, v1alpha1.RolloutComplete)

	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		withRollout(&v1alpha1.Rollout{
			Waves: []v1alpha1.Wave{waveOf("canary", 3600)}, MaxUnavailable: new(intstr.FromInt(1)),
		})(template)
		withObjects(t, configValue("two"))(template)
	})
	newest := s.waitRollout(template, v1alpha1.RolloutWaiting)
	waitValues(s, canaries, map[string]int{"two": 2})
	require.Equal(t, map[string]int{"one": 6}, configValues(s, others))

	// A restart changes nothing, and the revisions are read from the ControllerRevisions.
	require.NoError(t, s.operator.Kill())
	require.NoError(t, s.startOperator(t.Context()))
	s.waitReconciled("namespace")
	require.Equal(t, map[string]int{"one": 6}, configValues(s, others))
	require.Equal(t, map[string]int{"two": 2}, configValues(s, canaries))
	fresh := createNamespaceAfter(s, newest.StartTime, inTier("other"))
	waitValues(s, []*corev1.Namespace{fresh}, map[string]int{"two": 1})

	// A namespace that moves to the canaries gets the revision of its wave.
	s.patchNamespace(others[0], `{"metadata": {"labels": {"`+tierLabel+`": "canary"}}}`)
	waitValues(s, others, map[string]int{"one": 5, "two": 1})

	// An edit during the rollout.
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Rollout.Paused = true
		withObjects(t, configValue("three"))(template)
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	require.Equal(t, map[string]int{"two": 2}, configValues(s, canaries))
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Rollout.Paused = false
		template.Spec.Rollout.Waves[0].PauseSeconds = 0
	})
	s.waitRollout(template, v1alpha1.RolloutComplete)
	waitValues(s, append(all, fresh), map[string]int{"three": 9})

	revisions := &appsv1.ControllerRevisionList{}
	require.NoError(t, s.client.List(t.Context(), revisions, client.InNamespace(v1alpha1.OperatorNamespace),
		client.MatchingLabels{v1alpha1.RevisionOfLabel: template.Name}))
	require.Len(t, revisions.Items, 3)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.RevisionHistoryLimit = new(int32(1))
		withObjects(t, configValue("four"))(template)
	})
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.List(t.Context(), revisions, client.InNamespace(v1alpha1.OperatorNamespace),
			client.MatchingLabels{v1alpha1.RevisionOfLabel: template.Name}))
		assert.Len(c, revisions.Items, 2)
	})
	s.delete(template)
	s.eventually(func(c *assert.CollectT) {
		assert.NoError(c, s.client.List(t.Context(), revisions, client.InNamespace(v1alpha1.OperatorNamespace),
			client.MatchingLabels{v1alpha1.RevisionOfLabel: template.Name}))
		assert.Empty(c, revisions.Items, "they are deleted with the template")
	})
}

// A namespace that is created while a new template is rolled out has its objects before it opens.
func TestANewNamespaceDoesNotWaitForTheFirstRollout(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	s.applyLabels(s.preexistingNamespace())
	template := s.createTemplate("a", configValue("one"), withRollout(&v1alpha1.Rollout{Paused: true}))
	ns := s.createNamespace("new")
	s.waitInitialized(ns)
	require.Equal(t, map[string]int{"one": 1}, configValues(s, []*corev1.Namespace{ns}))
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, v1alpha1.NamespaceCounts{Matched: 2, Updated: 1, Populated: 1}, status.Namespaces)
	})
}

// An object that moves from one template to another exists at every moment, although the rollouts of the two templates
// are independent.
func TestAnObjectMovesBetweenTemplatesDuringRollouts(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	from := s.createTemplate("from", documents(configValue("one"), configMap("moves", "v")), deletesObjects)
	to := s.createTemplate("to", configMap("other", "v"), deletesObjects)
	ns := s.createPopulatedNamespace("a")
	s.waitPresent(ns, configMap("moves", "v"))
	s.updateTemplate(to, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
		withObjects(t, documents(configMap("other", "v"), configMap("moves", "v")))(template)
	})
	s.waitRollout(to, v1alpha1.RolloutPaused)
	uid := s.mustGet(ns, theConfigMap("moves")).GetUID()
	s.updateTemplate(from, withObjects(t, configValue("two")))
	waitValues(s, []*corev1.Namespace{ns}, map[string]int{"two": 1})
	s.waitRollout(from, v1alpha1.RolloutComplete)
	require.Equal(t, uid, s.mustGet(ns, theConfigMap("moves")).GetUID())
	s.updateTemplate(to, withRollout(nil))
	s.waitRollout(to, v1alpha1.RolloutComplete)
	s.eventually(func(c *assert.CollectT) {
		moved := s.mustGet(ns, theConfigMap("moves"))
		assert.Equal(c, to.Name, moved.GetLabels()[v1alpha1.TemplateNameLabel])
		assert.Equal(c, uid, moved.GetUID())
	})
}

// While a guarded template is rolled out, a namespace that only its earlier revision selects does not get that one:
// admission asks for the verb use by the stored selector.
func TestARolloutDoesNotOpenAGuardedTemplate(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	inClass := func(class string) func(*v1alpha1.NamespaceTemplate) {
		return func(template *v1alpha1.NamespaceTemplate) {
			template.Spec.Namespaces = v1alpha1.NamespaceSelector{LabelSelector: &metav1.LabelSelector{
				MatchLabels: map[string]string{testLabel: s.id, "class": class},
			}}
		}
	}
	template := s.createTemplate("guarded", configMap("guarded", "v"), requiresUse, inClass("before"))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	ns := createPopulatedNamespaceWithMarker(s)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
		inClass("after")(template)
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	s.patchNamespace(ns, `{"metadata": {"labels": {"class": "before", "`+tierLabel+`": "x"}}}`)
	s.waitPresent(ns, configMap("seen", "v")) // the operator has reconciled the new labels
	s.waitAbsent(ns, configMap("guarded", ""))
}

// createPopulatedNamespaceWithMarker returns a namespace that has a ConfigMap "seen" once it is reconciled in tier x.
func createPopulatedNamespaceWithMarker(s *testScope) *corev1.Namespace {
	s.t.Helper()
	s.createTemplate("marker", configMap("seen", "v"), func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Namespaces.LabelSelector.MatchLabels[tierLabel] = "x"
	})
	return s.createNamespace("relabelled")
}

// A rollout that stopped goes on where it was when its template is disabled and enabled again.
func TestDisablingATemplateDoesNotCompleteItsRollout(t *testing.T) {
	t.Parallel()
	s := newScope(t, sharedCluster)
	template := s.createTemplate("a", configValue("one"))
	ns := s.createPopulatedNamespace("a")
	s.waitRollout(template, v1alpha1.RolloutComplete)
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
		withObjects(t, configValue("two"))(template)
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	s.updateTemplate(template, disablesTemplate)
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Zero(c, status.Namespaces.Matched)
	})
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) { template.Annotations = nil })
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.EqualValues(c, 1, status.Namespaces.Populated)
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	require.Equal(t, map[string]int{"one": 1}, configValues(s, []*corev1.Namespace{ns}))
}

// A template that cannot be compiled any more does not change what it populated, nor keep new namespaces closed.
func TestTheLastAcceptedRevisionStaysInForce(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	template := s.createTemplate("a", configValue("one"))
	old := s.createPopulatedNamespace("old")
	s.updateTemplateUnvetted(template, withObjects(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: '$(X'}, data: 5}\n---\n"+
		"{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: 5}}"))
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, metav1.ConditionFalse, templateCondition(status, v1alpha1.TemplateAccepted).Status)
	})
	fresh := s.createNamespace("new")
	s.waitPopulated(fresh)
	require.Equal(t, map[string]int{"one": 2}, configValues(s, []*corev1.Namespace{old, fresh}))
	s.delete(s.mustGet(old, theConfigMap("config")))
	waitValues(s, []*corev1.Namespace{old}, map[string]int{"one": 1})
}

// A user who may write ControllerRevisions in their own namespace, and templates without any other right, cannot have
// the operator apply a revision that was not vetted.
func TestRevisionsOfOthersAreIgnored(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	s := newScope(t, borrowCluster(t))
	template := s.newTemplate("a", configValue("one"))
	forged := &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v1alpha1.OperatorNamespace, Name: template.Name + "-1",
			Labels: map[string]string{v1alpha1.RevisionOfLabel: template.Name},
		},
		Revision: 1,
	}
	forged.Data.Raw = []byte(`{"spec": {"namespaces": {"labelSelector": {}}}}`)
	require.NoError(t, s.client.Create(t.Context(), forged))
	require.NoError(t, s.client.Create(t.Context(), template))
	s.waitRollout(template, v1alpha1.RolloutComplete)
	stored := &appsv1.ControllerRevision{}
	require.NoError(t, s.client.Get(t.Context(),
		client.ObjectKey{Namespace: v1alpha1.OperatorNamespace, Name: template.Name + "-2"}, stored))
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(forged), &appsv1.ControllerRevision{}),
		"it is not replaced")
	require.True(t, metav1.IsControlledBy(stored, template))
	require.Contains(t, string(stored.Data.Raw), "config")

	// The namespaces of a revision that is missing when it is needed get the newest one, since there is no older one.
	ns := s.createPopulatedNamespace("a")
	require.NoError(t, s.client.Delete(t.Context(), stored))
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.Rollout = &v1alpha1.Rollout{Paused: true}
		withObjects(t, configValue("two"))(template)
	})
	s.waitRollout(template, v1alpha1.RolloutPaused)
	require.NoError(t, s.operator.Kill())
	require.NoError(t, s.startOperator(t.Context()))
	s.createTemplate("marker", configMap("marker", "v"))
	s.waitPresent(ns, configMap("marker", "v")) // the new operator has reconciled the namespace
	require.Equal(t, map[string]int{"two": 1}, configValues(s, []*corev1.Namespace{ns}))
}
