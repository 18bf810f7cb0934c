package populate

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

func TestReportedFindingsAreThoseOfTheCondition(t *testing.T) {
	t.Parallel()
	settings := ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "settings"}
	binding := ObjectID{GroupKind: bindingKind, Name: "team:viewers"}
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
	id := ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "settings"}
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

// A message has failures, then drift, before other warnings, and says that there are more.
func TestMessageHasAsManyFindingsAsPossible(t *testing.T) {
	t.Parallel()
	const limit = 1000
	finding := func(severity Severity, reason, message string) Finding {
		return Finding{
			Object:   ObjectID{GroupKind: schema.GroupKind{Kind: "ConfigMap"}, Name: "x"},
			Severity: severity, Reason: reason, Message: message,
		}
	}
	long := strings.Repeat("é", limit)
	twice := finding(Warning, FindingDeclaredTwice, messageDeclaredTwice+"a and b"+long)
	ignored := finding(Warning, FindingFailed, "no: "+long)
	drifted := finding(Warning, FindingDrifted, messageDrifted+"data.a")
	stays := finding(Warning, FindingGrantStays, messageGrantStays+long)
	for name, test := range map[string]struct {
		findings     []Finding
		want         []string
		isShortened  bool
		mayLackDrift bool
	}{
		"none":             {findings: []Finding{finding(Info, FindingDriftCorrected, long)}},
		"all fit":          {findings: []Finding{drifted}, want: []string{FindingDrifted}},
		"one is too long":  {findings: []Finding{ignored}, want: []string{FindingFailed}},
		"after a long one": {findings: []Finding{twice, drifted}, want: []string{FindingDrifted, FindingDeclaredTwice}},
		"drift after many": {
			findings: append(slices.Repeat([]Finding{twice}, 9), drifted), isShortened: true,
			want: append([]string{FindingDrifted}, slices.Repeat([]string{FindingDeclaredTwice}, 4)...),
		},
		"drift after many failures": {
			findings: append(slices.Repeat([]Finding{ignored}, 9), drifted), isShortened: true, mayLackDrift: true,
			want: slices.Repeat([]string{FindingFailed}, 4),
		},
		"grants after drift": {
			findings: append(slices.Repeat([]Finding{stays}, 9), drifted, ignored), isShortened: true,
			want: []string{FindingFailed, FindingDrifted, FindingGrantStays, FindingGrantStays, FindingGrantStays},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			message := Message([]string{"1 object of t"}, test.findings, limit)
			require.LessOrEqual(t, len(message), limit)
			require.True(t, utf8.ValidString(message))
			condition := &corev1.NamespaceCondition{Status: corev1.ConditionTrue, Message: message}
			var reasons []string
			for _, reported := range ReportedFindings(condition) {
				reasons = append(reasons, reported.Reason)
			}
			require.Equal(t, test.want, reasons)
			require.Equal(t, test.isShortened, IsShortened(condition))
			require.Equal(t, test.mayLackDrift, MayLackDrift(condition))
		})
	}
}
