package integration_test

import (
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/test/marks"
)

// newOpenReport returns an empty Report of openreports.io with the name that the operator uses.
func newOpenReport(namespace string) *unstructured.Unstructured {
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(schema.GroupVersionKind{Group: "openreports.io", Version: "v1alpha1", Kind: "Report"})
	report.SetName("nstpl")
	report.SetNamespace(namespace)
	return report
}

// waitOpenReport waits until a namespace has a Report whose first result has a message.
func waitOpenReport(s *testScope, ns *corev1.Namespace, message string) *unstructured.Unstructured {
	s.t.Helper()
	report := newOpenReport(ns.Name)
	s.eventually(func(c *assert.CollectT) {
		if assert.NoError(c, s.client.Get(s.t.Context(), client.ObjectKeyFromObject(report), report)) {
			results, _, _ := unstructured.NestedSlice(report.Object, "results")
			if assert.NotEmpty(c, results) {
				assert.Contains(c, results[0].(map[string]any)["message"], message)
			}
		}
	})
	return report
}

func waitNoOpenReport(s *testScope, ns *corev1.Namespace) {
	s.t.Helper()
	report := newOpenReport(ns.Name)
	s.eventually(func(c *assert.CollectT) {
		assert.True(c, apierrors.IsNotFound(s.client.Get(s.t.Context(), client.ObjectKeyFromObject(report), report)))
	})
}

// setSettingsKey changes the ConfigMap settings as another client would.
func setSettingsKey(s *testScope, ns *corev1.Namespace, value string) {
	s.t.Helper()
	settings := s.mustGet(ns, parseYAML(s.t, configMap("settings", ""))[0])
	settings.Object["data"] = map[string]any{"key": value}
	require.NoError(s.t, s.client.Update(s.t.Context(), settings, client.FieldOwner("kubectl-edit")))
}

func TestOpenReports(t *testing.T) {
	marks.Thorough(t)
	t.Parallel()
	cluster := borrowClusterWithoutOperator(t)
	s := newScope(t, cluster)
	permissions, err := os.ReadFile("../../manifests/components/openreports/rbac.yaml")
	require.NoError(t, err)
	s.applyYAML(string(permissions))
	require.NoError(t, cluster.startOperator(t.Context(), "--open-reports"))
	template := s.createTemplate("defaults", documents(configMap("settings", "v")), reportsDrift)

	// Without the CustomResourceDefinition, namespaces are populated all the same.
	ns, forged := s.createPopulatedNamespace("a"), s.createPopulatedNamespace("forged")
	setSettingsKey(s, ns, "theirs")
	s.waitCondition(ns, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "drifted")
	})

	// The Report appears soon after its CustomResourceDefinition.
	_, err = cluster.kubectl(t.Context(), "", "apply", "--filename", "testdata/openreports.yaml")
	require.NoError(t, err)
	report := waitOpenReport(s, ns, "drifted: data.key changed by kubectl-edit")
	results, _, err := unstructured.NestedSlice(report.Object, "results")
	require.NoError(t, err)
	require.Equal(t, []any{map[string]any{
		"source": "nstpl", "policy": s.name("defaults"), "rule": "Drifted", "result": "warn", "severity": "medium",
		"message":    results[0].(map[string]any)["message"],
		"resources":  []any{map[string]any{"kind": "ConfigMap", "namespace": ns.Name, "name": "settings"}},
		"properties": map[string]any{"object": "configmap/settings"},
	}}, results)

	t.Run("a changed Report is repaired at the next report on the namespace", func(t *testing.T) {
		expectReportRepaired(t, s.withT(t), ns, report)
	})

	t.Run("a deleted Report is created at the next report on the namespace", func(t *testing.T) {
		expectReportCreatedAgain(t, s.withT(t), ns)
	})

	t.Run("a Report is deleted when the namespace is clean, unless another client created it", func(t *testing.T) {
		expectReportOfOthersKept(t, s.withT(t), template, ns, forged)
	})

	t.Run("another operator deletes the Report of a namespace that is clean", func(t *testing.T) {
		expectReportDeletedByNextOperator(t, s.withT(t), ns)
	})

	t.Run("nothing is written without the flag", func(t *testing.T) {
		expectNoReportWithoutFlag(t, s.withT(t), forged)
	})
}

// changeNamespace changes a namespace, so that the operator reports on it again.
func changeNamespace(s *testScope, ns *corev1.Namespace, value string) {
	s.t.Helper()
	s.patchNamespace(ns, `{"metadata": {"annotations": {"touched": "`+value+`"}}}`)
}

func expectReportRepaired(
	t *testing.T, s *testScope, ns *corev1.Namespace, report *unstructured.Unstructured,
) {
	t.Helper()
	report.Object["results"] = []any{map[string]any{"policy": "x", "result": "pass", "message": "all is well"}}
	require.NoError(t, s.client.Update(t.Context(), report, client.FieldOwner("kubectl-edit")))
	changeNamespace(s, ns, "after the change")
	waitOpenReport(s, ns, "drifted: ")
}

func expectReportCreatedAgain(t *testing.T, s *testScope, ns *corev1.Namespace) {
	t.Helper()
	require.NoError(t, s.client.Delete(t.Context(), newOpenReport(ns.Name)))
	changeNamespace(s, ns, "after the deletion")
	waitOpenReport(s, ns, "drifted: ")
}

func expectReportOfOthersKept(
	t *testing.T, s *testScope, template *v1alpha1.NamespaceTemplate, ns, forged *corev1.Namespace,
) {
	t.Helper()
	other := newOpenReport(forged.Name)
	other.Object["source"] = "another"
	require.NoError(t, s.client.Create(t.Context(), other, client.FieldOwner("another")))
	setSettingsKey(s, forged, "theirs")
	s.eventually(func(c *assert.CollectT) {
		assert.Contains(c, s.operator.Log(forged.Name), "another client created the Report")
	})
	s.updateTemplate(template, func(template *v1alpha1.NamespaceTemplate) {
		template.Spec.DriftPolicy = v1alpha1.DriftCorrect
	})
	waitNoOpenReport(s, ns)
	s.waitCondition(forged, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.NotContains(c, condition.Message, "drifted")
	})
	s.updateTemplate(template, reportsDrift)
	s.waitRollout(template, v1alpha1.RolloutComplete) // until then, drift may still be corrected
	setSettingsKey(s, ns, "theirs again")             // written after the Report of the other namespace would have been
	waitOpenReport(s, ns, "drifted: ")
	stored := newOpenReport(forged.Name)
	require.NoError(t, s.client.Get(t.Context(), client.ObjectKeyFromObject(stored), stored))
	require.Equal(t, other.GetResourceVersion(), stored.GetResourceVersion())
}

func expectReportDeletedByNextOperator(t *testing.T, s *testScope, ns *corev1.Namespace) {
	t.Helper()
	require.NoError(t, s.operator.Kill())
	s.patchNamespace(ns, `{"metadata": {"annotations": {"`+v1alpha1.OptOutAnnotation+`": "true"}}}`)
	require.NoError(t, s.startOperator(t.Context(), "--open-reports"))
	waitNoOpenReport(s, ns)
}

func expectNoReportWithoutFlag(t *testing.T, s *testScope, forged *corev1.Namespace) {
	t.Helper()
	require.NoError(t, s.operator.Kill())
	require.NoError(t, s.startOperator(t.Context()))
	position := s.auditPosition()
	setSettingsKey(s, forged, "theirs again")
	s.waitCondition(forged, func(c *assert.CollectT, condition corev1.NamespaceCondition) {
		assert.Contains(c, condition.Message, "drifted")
	})
	require.Empty(t, s.writesSince(position, func(r request) bool { return r.ObjectRef.Resource == "reports" }))
}
