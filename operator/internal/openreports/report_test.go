package openreports

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
)

func TestReport(t *testing.T) {
	role := populate.ObjectID{GroupKind: schema.GroupKind{Group: "rbac.authorization.k8s.io", Kind: "Role"}, Name: "a"}
	report := newReport("team-a", important([]populate.Finding{
		{Object: role, Template: "base", Severity: populate.Error, Reason: populate.FindingFailed, Message: "denied"},
		{Severity: populate.Info, Reason: populate.FindingDriftCorrected, Message: "corrected"},
		{Severity: populate.Warning, Reason: populate.FindingDrifted, Message: strings.Repeat("x", 2000)},
	}))
	require.Equal(t, "team-a/nstpl", report.GetNamespace()+"/"+report.GetName())
	require.Equal(t, map[string]any{
		"pass": int64(0), "fail": int64(1), "warn": int64(1), "error": int64(0), "skip": int64(0),
	}, report.Object["summary"])
	results, _ := report.Object["results"].([]any)
	require.Len(t, results, 2)
	require.Equal(t, map[string]any{
		"source": "nstpl", "policy": "base", "rule": "ObjectFailed", "result": "fail", "severity": "high", "message": "denied",
		"resources":  []any{map[string]any{"kind": "Role", "namespace": "team-a", "name": "a"}},
		"properties": map[string]any{"object": "role.rbac.authorization.k8s.io/a"},
	}, results[0])
	second, _ := results[1].(map[string]any)
	require.Equal(t, "nstpl", second["policy"], "a policy is required")
	require.Less(t, len(fmt.Sprint(second["message"])), 1100)
}

// A Report stays small however many findings there are, and its summary counts all of them.
func TestReportsAreBounded(t *testing.T) {
	report := newReport("team-a", make([]populate.Finding, 1000))
	require.Len(t, report.Object["results"], maxResults)
	summary, _ := report.Object["summary"].(map[string]any)
	require.Equal(t, int64(1000), summary["warn"])
}

func TestOwnership(t *testing.T) {
	report := func(label, manager string) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
			Labels: map[string]string{ManagedByLabel: label}, ManagedFields: []metav1.ManagedFieldsEntry{{Manager: manager}},
		}}
	}
	require.True(t, isOurs(report(Name, FieldManager)))
	require.False(t, isOurs(report(Name, "kubectl-create")))
	require.False(t, isOurs(report("kyverno", FieldManager)))
}
