package integration_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/initialize"
)

// templateFixture creates templates and waits until the operator has populated namespaces from them.
type templateFixture struct{ userFixture }

// waitReason waits until the Populated condition of a namespace is False with a reason.
func (s templateFixture) waitReason(ns *corev1.Namespace, reason string) {
	s.t.Helper()
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Equal(c, reason, condition.Reason, condition.Message)
	})
}

// finishInitialization removes all pending initializers of a namespace, as the last of them would.
func (s templateFixture) finishInitialization(ns *corev1.Namespace) {
	s.t.Helper()
	s.patchNamespace(ns, `{"metadata": {"annotations": {"`+v1alpha1.PendingAnnotation+`": null}}}`)
}

// createInitializers has the scope's namespaces wait for initializers. It returns when the API server lists them as
// pending in new namespaces.
func (s templateFixture) createInitializers(
	timeout int32, policy v1alpha1.FailurePolicy, shorts ...string,
) *v1alpha1.NamespaceInitializationConfiguration {
	s.t.Helper()
	configuration := &v1alpha1.NamespaceInitializationConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.name(shorts[0])},
	}
	var names []string
	for _, short := range shorts {
		names = append(names, s.name(short))
		configuration.Initializers = append(configuration.Initializers, v1alpha1.Initializer{
			Name: s.name(short), NamespaceSelector: selectLabel(testLabel, s.id).LabelSelector, TimeoutSeconds: timeout,
			FailurePolicy: policy,
		})
	}
	require.NoError(s.t, s.client.Create(s.t.Context(), configuration))
	s.waitPendingOnCreation(names...)
	return configuration
}

// waitPendingOnCreation waits until the API server lists initializers as pending in new namespaces of the scope.
func (s templateFixture) waitPendingOnCreation(entries ...string) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		probe := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: s.name("probe"), Labels: map[string]string{testLabel: s.id},
		}}
		if assert.NoError(c, s.client.Create(s.t.Context(), probe, client.DryRunAll)) {
			assert.Subset(c, initialize.Pending(probe), entries)
		}
	})
}

// waitUntouched waits until the operator has reconciled a namespace again: a change of the template probe reaches it.
func (s templateFixture) waitUntouched(ns *corev1.Namespace, probe *v1alpha1.NamespaceTemplate, round string) {
	s.t.Helper()
	s.updateTemplate(probe, withObjects(s.t, configMap("probe", round)))
	s.waitPresent(ns, configMap("probe", round))
}

// waitRollout waits until the newest revision of a template is in a state.
func (s templateFixture) waitRollout(
	template *v1alpha1.NamespaceTemplate, state v1alpha1.RolloutState,
) v1alpha1.TemplateRevision {
	s.t.Helper()
	var newest v1alpha1.TemplateRevision
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.GreaterOrEqual(c, status.ObservedGeneration, template.Generation)
		if assert.NotEmpty(c, status.Revisions) {
			newest = status.Revisions[0]
			assert.Equal(c, state, newest.State)
		}
	})
	return newest
}

// newTemplate returns a template with the scope's selector and the objects of a YAML text.
func (s templateFixture) newTemplate(
	short, objects string, change ...func(*v1alpha1.NamespaceTemplate),
) *v1alpha1.NamespaceTemplate {
	s.t.Helper()
	template := &v1alpha1.NamespaceTemplate{
		ObjectMeta: metav1.ObjectMeta{Name: s.name(short)},
		Spec: v1alpha1.NamespaceTemplateSpec{
			Namespaces: selectLabel(testLabel, s.id), Templates: rawObjects(s.t, objects),
		},
	}
	for _, apply := range change {
		apply(template)
	}
	return template
}

// createTemplate creates a template and returns when the operator has observed it.
func (s templateFixture) createTemplate(
	short, objects string, change ...func(*v1alpha1.NamespaceTemplate),
) *v1alpha1.NamespaceTemplate {
	s.t.Helper()
	template := s.newTemplate(short, objects, change...)
	require.NoError(s.t, s.client.Create(s.t.Context(), template))
	s.waitTemplateObserved(template)
	return template
}

// updateTemplate changes a template and returns when the operator has observed the change.
func (s templateFixture) updateTemplate(template *v1alpha1.NamespaceTemplate, change func(*v1alpha1.NamespaceTemplate)) {
	s.t.Helper()
	s.patchTemplate(template, change)
	s.waitTemplateObserved(template)
}

// patchTemplate changes a template and returns at once.
func (s templateFixture) patchTemplate(template *v1alpha1.NamespaceTemplate, change func(*v1alpha1.NamespaceTemplate)) {
	s.t.Helper()
	old := &v1alpha1.NamespaceTemplate{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(template), old))
	changed := old.DeepCopy()
	change(changed)
	require.NoError(s.t, s.client.Patch(s.t.Context(), changed, client.MergeFrom(old)))
	template.ObjectMeta, template.Spec = changed.ObjectMeta, changed.Spec
}

// updateTemplateUnvetted changes a template in a way that vetting denies. Such templates exist if they were stored
// before the webhook was installed. It restarts the operator.
func (s templateFixture) updateTemplateUnvetted(
	template *v1alpha1.NamespaceTemplate, change func(*v1alpha1.NamespaceTemplate),
) {
	s.t.Helper()
	require.NoError(s.t, s.operator.Kill())
	s.disableVetting()
	s.patchTemplate(template, change)
	require.NoError(s.t, s.startOperator(s.t.Context()))
	s.waitTemplateObserved(template)
}

// disableVetting deletes the webhook that vets templates, while the operator is down. The operator creates it again
// when it starts.
func (s templateFixture) disableVetting() {
	s.t.Helper()
	webhooks := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	require.NoError(s.t, s.client.Get(s.t.Context(), client.ObjectKey{Name: v1alpha1.WebhookName}, webhooks))
	webhooks.Webhooks = nil
	require.NoError(s.t, s.client.Update(s.t.Context(), webhooks))
	s.eventually(func(c *assert.CollectT) { // until the API server no longer calls the webhook
		assert.NoError(c, s.client.Create(s.t.Context(), s.newTemplate("probe", configMap("a", "v")), client.DryRunAll))
	})
}

// selectLabel returns a selector of namespaces with a label.
func selectLabel(label, value string) v1alpha1.NamespaceSelector {
	return v1alpha1.NamespaceSelector{
		LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{label: value}},
	}
}

// withObjects has a template declare the objects of a YAML text.
func withObjects(t *testing.T, text string) func(*v1alpha1.NamespaceTemplate) {
	t.Helper()
	all := rawObjects(t, text)
	return func(template *v1alpha1.NamespaceTemplate) { template.Spec.Templates = all }
}

func deletesObjects(template *v1alpha1.NamespaceTemplate) {
	template.Spec.DeletionPolicy = v1alpha1.DeletionDelete
}

func reportsDrift(template *v1alpha1.NamespaceTemplate) {
	template.Spec.DriftPolicy = v1alpha1.DriftReport
}

func ignoresFailures(template *v1alpha1.NamespaceTemplate) {
	template.Spec.FailurePolicy = v1alpha1.FailureIgnore
}

func disablesTemplate(template *v1alpha1.NamespaceTemplate) {
	template.Annotations = map[string]string{v1alpha1.TemplateApplyAnnotation: v1alpha1.TemplateApplyDisable}
}

// requiresUse has a template select only the namespaces of users who have the verb use on it.
func requiresUse(template *v1alpha1.NamespaceTemplate) {
	template.Annotations = map[string]string{v1alpha1.RequirePermissionAnnotation: "true"}
}

// waitTemplateObserved waits until the operator has observed a template's generation.
func (s templateFixture) waitTemplateObserved(template *v1alpha1.NamespaceTemplate) {
	s.t.Helper()
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.GreaterOrEqual(c, status.ObservedGeneration, template.Generation)
	})
}

// waitTemplateStatus waits until a template's status is as expected.
func (s templateFixture) waitTemplateStatus(
	template *v1alpha1.NamespaceTemplate, expect func(*assert.CollectT, v1alpha1.NamespaceTemplateStatus),
) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := &v1alpha1.NamespaceTemplate{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(template), found)) {
			expect(c, found.Status)
		}
	})
}

// templateCondition returns a condition of a template, or the zero value if the template does not have it.
func templateCondition(status v1alpha1.NamespaceTemplateStatus, name string) metav1.Condition {
	for _, condition := range status.Conditions {
		if condition.Type == name {
			return condition
		}
	}
	return metav1.Condition{}
}

// waitDriftedNamespaces waits until a template's status counts a number of namespaces with drift.
func (s templateFixture) waitDriftedNamespaces(template *v1alpha1.NamespaceTemplate, namespaces int32) {
	s.t.Helper()
	s.waitTemplateStatus(template, func(c *assert.CollectT, status v1alpha1.NamespaceTemplateStatus) {
		assert.Equal(c, namespaces, status.Namespaces.Drifted)
		assert.Equal(c, metav1.ConditionTrue, templateCondition(status, v1alpha1.TemplatePopulated).Status)
	})
}

// createPopulatedNamespace creates a namespace of the scope and returns when it is populated.
func (s templateFixture) createPopulatedNamespace(short string, change ...func(*corev1.Namespace)) *corev1.Namespace {
	s.t.Helper()
	ns := s.createNamespace(short, change...)
	s.waitPopulated(ns)
	return ns
}

// waitPopulated waits until a namespace's Populated condition is True.
func (s templateFixture) waitPopulated(ns *corev1.Namespace) {
	s.t.Helper()
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionTrue, condition.Status, condition.Message)
	})
}

// waitNotPopulated waits until a namespace's Populated condition is False, with a message that contains a text.
func (s templateFixture) waitNotPopulated(ns *corev1.Namespace, text string) {
	s.t.Helper()
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Equal(c, corev1.ConditionFalse, condition.Status)
		assert.Contains(c, condition.Message, text)
	})
}

// waitInitialized waits until a namespace is no longer initializing.
func (s templateFixture) waitInitialized(ns *corev1.Namespace) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := &corev1.Namespace{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(ns), found)) {
			assert.NotContains(c, found.Labels, v1alpha1.InitializingLabel)
			assert.NotContains(c, found.Annotations, v1alpha1.PendingAnnotation)
		}
	})
}

// waitCondition waits until a namespace's Populated condition is as expected. A missing condition is the zero value.
func (s templateFixture) waitCondition(ns *corev1.Namespace, expect func(*assert.CollectT, corev1.NamespaceCondition)) {
	s.t.Helper()
	s.eventually(func(c *assert.CollectT) {
		found := &corev1.Namespace{}
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(ns), found)) {
			expect(c, populatedCondition(found))
		}
	})
}

func populatedCondition(ns *corev1.Namespace) corev1.NamespaceCondition {
	for _, condition := range ns.Status.Conditions {
		if condition.Type == v1alpha1.NamespacePopulated {
			return condition
		}
	}
	return corev1.NamespaceCondition{}
}

// vet creates a template by a dry run, and returns the error.
func (s templateFixture) vet(objects string, change ...func(*v1alpha1.NamespaceTemplate)) error {
	s.t.Helper()
	return s.client.Create(s.t.Context(), s.newTemplate("vetted", objects, change...), client.DryRunAll)
}
