package openreports

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/operator/internal/reporting"
)

// Name is the name of the Report in each namespace.
const Name = "nstpl"

// FieldManager is the field manager of Reports. It differs from that of populated objects.
const FieldManager = "nstpl-openreports"

// ManagedByLabel has the value Name on the operator's Reports.
const ManagedByLabel = "app.kubernetes.io/managed-by"

var groupVersion = schema.GroupVersion{Group: "openreports.io", Version: "v1alpha1"}

// maxResults is the number of findings in a Report. The summary counts all of them.
const maxResults = 100

// important returns the findings that a Report has: all but those about changes that the operator made.
func important(findings []populate.Finding) []populate.Finding {
	var all []populate.Finding
	for _, finding := range findings {
		if finding.Severity != populate.Info {
			all = append(all, finding)
		}
	}
	return all
}

// newReport returns the Report on a namespace. The findings are not empty. The results have no times, so that the same
// findings make the same Report.
func newReport(namespace string, findings []populate.Finding) *unstructured.Unstructured {
	failed, skipped, results := int64(0), int64(0), []any{}
	for i, finding := range findings {
		switch finding.Severity {
		case populate.Error:
			failed++
		case populate.Exempt:
			skipped++
		case populate.Info, populate.Warning:
		}
		if i < maxResults {
			results = append(results, newResult(namespace, finding))
		}
	}
	report := &unstructured.Unstructured{Object: map[string]any{
		"source": Name,
		"scope": map[string]any{
			"apiVersion": corev1.SchemeGroupVersion.String(), "kind": "Namespace", "name": namespace,
		},
		"configuration": map[string]any{"limits": map[string]any{"maxResults": int64(maxResults)}},
		"summary": map[string]any{
			"pass": int64(0), "fail": failed, "warn": int64(len(findings)) - failed - skipped, "error": int64(0),
			"skip": skipped,
		},
		"results": results,
	}}
	report.SetGroupVersionKind(groupVersion.WithKind("Report"))
	report.SetName(Name)
	report.SetNamespace(namespace)
	report.SetLabels(map[string]string{ManagedByLabel: Name})
	return report
}

func newResult(namespace string, finding populate.Finding) map[string]any {
	result := map[string]any{
		"source": Name, "policy": finding.Template, "rule": finding.Reason, "result": "warn", "severity": "medium",
		"message": reporting.Shorten(finding.Message),
	}
	if finding.Template == "" {
		result["policy"] = Name
	}
	switch finding.Severity {
	case populate.Error:
		result["result"], result["severity"] = "fail", "high"
	case populate.Exempt:
		result["result"], result["severity"] = "skip", "info"
	case populate.Info, populate.Warning:
	}
	if finding.Object != (populate.ObjectID{}) {
		result["resources"] = []any{map[string]any{
			"kind": finding.Object.Kind, "namespace": namespace, "name": finding.Object.Name,
		}}
		// A reference has a version, which a finding does not have, and a kind alone can be ambiguous.
		result["properties"] = map[string]any{"object": finding.Object.String()}
	}
	return result
}
