package populate

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

func TestReportedFindingsAreThoseOfTheCondition(t *testing.T) {
	t.Parallel()
	settings := ObjectID{schema.GroupKind{Kind: "ConfigMap"}, "settings"}
	binding := ObjectID{schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "RoleBinding"}, "team:viewers"}
	findings := []Finding{
		{
			Object: settings, Template: "defaults", Severity: Error,
			Message: "configmaps \"settings\" is forbidden: quota; exceeded",
		},
		{Template: "broken", Severity: Error, Message: "template broken: it has no name"},
		{
			Object: binding, Severity: Warning,
			Message: "drifted: subjects changed by kubectl-edit; driftPolicy is Report",
		},
	}
	parts := []string{"2 objects of defaults, more"}
	for _, finding := range findings {
		parts = append(parts, finding.String())
	}
	require.Equal(t, []Reported{
		{
			Object: "configmap/settings", Template: "defaults", Severity: Error, Reason: FindingFailed,
			Message: "configmaps \"settings\" is forbidden: quota; exceeded",
		},
		{Severity: Error, Reason: ConditionTemplateNotAccepted, Message: "template broken: it has no name"},
		{
			Object: "rolebinding.rbac.authorization.k8s.io/team:viewers", Severity: Warning, Reason: FindingDrifted,
			Message: "drifted: subjects changed by kubectl-edit; driftPolicy is Report",
		},
	}, ReportedFindings(&corev1.NamespaceCondition{
		Status: corev1.ConditionFalse, Reason: ConditionTemplateNotAccepted, Message: strings.Join(parts, "; "),
	}))
	for _, count := range []string{"2 objects of defaults, more", "1 object of defaults", "0 objects"} {
		require.Empty(t, ReportedFindings(&corev1.NamespaceCondition{Status: corev1.ConditionTrue, Message: count}))
		require.Len(t, ReportedFindings(&corev1.NamespaceCondition{
			Status: corev1.ConditionTrue, Message: count + "; configmap/a: drifted: b",
		}), 1)
	}
	require.Empty(t, ReportedFindings(nil))
}

// Each reason of a finding that leaves a namespace populated is known again from the condition.
func TestReportedFindingsHaveTheirReasons(t *testing.T) {
	t.Parallel()
	id := ObjectID{schema.GroupKind{Kind: "ConfigMap"}, "settings"}
	template := &v1alpha1.NamespaceTemplate{}
	template.Spec.FailurePolicy = v1alpha1.FailureIgnore
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	change := Change{Action: LeaveAlone, Kind: kind, Name: "settings"}
	drifted, undeclared, protected := change, change, change
	drifted.Drifted, drifted.Reason = true, "data.a changed"
	undeclared.Undeclared, undeclared.Reason = true, messageUndeclared+"; authoritativePolicy is Report"
	protected.Protected, protected.Reason = true, messageProtected+" (template a does not select the namespace)"
	for reason, declared := range map[string]Plan{
		FindingProtected:  {Changes: []Change{protected}},
		FindingDrifted:    {Changes: []Change{drifted}},
		FindingUndeclared: {Changes: []Change{undeclared}},
		FindingLeftOut: {Declared: Declared{
			Omitted: []render.Omission{{Kind: kind, Name: "settings", Reason: "the creator is unknown"}},
		}},
		FindingDeclaredTwice:  {Declared: Declared{Overridden: []Overridden{{Object: id, Template: "t", By: "u"}}}},
		FindingBrokenTemplate: {Declared: Declared{Broken: []Broken{{template, errors.New("template t: no")}}}},
	} {
		findings := Findings(declared, Result{})
		require.Len(t, findings, 1)
		reported := ReportedFindings(&corev1.NamespaceCondition{
			Status: corev1.ConditionTrue, Message: "1 object of t; " + findings[0].String(),
		})
		require.Len(t, reported, 1)
		require.Equal(t, reason, reported[0].Reason)
		require.Equal(t, Warning, reported[0].Severity)
		require.Equal(t, findings[0].Message, reported[0].Message)
	}
}
