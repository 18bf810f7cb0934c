package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/engine/populate"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

// findingsOf returns the findings in the Populated condition of a namespace.
func findingsOf(namespace string, condition *corev1.NamespaceCondition) []Finding {
	var findings []Finding
	for _, reported := range populate.ReportedFindings(condition) {
		finding := Finding{
			Severity: severityOf(reported), Namespace: namespace, Template: reported.Template, Object: reported.Object,
			Reason: reported.Reason, Message: reported.Cause(),
		}
		if finding.Severity == Failure { // when other findings began, the condition does not say
			finding.Since = output.UTC(condition.LastTransitionTime)
		}
		finding.Remedy = remedy(finding)
		findings = append(findings, finding)
	}
	return findings
}

// selectCluster makes the commands in a report for people select its cluster, with the context in any case, since its
// readers may have another current context. They may also use another machine, on which a file is another one.
func (r *Report) selectCluster(s cli.Session) {
	s = s.ForContext(r.Cluster)
	for i := range r.Findings {
		f := &r.Findings[i]
		f.Message, f.Remedy = s.CommandsElsewhere(f.Message), s.CommandsElsewhere(f.Remedy)
	}
	for i := range r.Namespaces {
		r.Namespaces[i].Message = s.CommandsElsewhere(r.Namespaces[i].Message)
	}
	for i := range r.Notes {
		r.Notes[i] = s.CommandsElsewhere(r.Notes[i])
	}
	for i := range r.PendingDeletions {
		r.PendingDeletions[i].Why = s.CommandsElsewhere(r.PendingDeletions[i].Why)
	}
}

func severityOf(reported populate.Reported) Severity {
	switch {
	case reported.Severity == populate.Error:
		return Failure
	case survey.IsDrift(reported):
		return Drift
	}
	return Warning
}

// remedy says what to do about a finding of a namespace.
func remedy(f Finding) string {
	diff := fmt.Sprintf("'kubectl nstpl diff %s' shows the difference", f.Namespace)
	switch f.Reason {
	case populate.ConditionRetrying:
		return "The operator tries again by itself. If the failure lasts, look at the operator's log."
	case populate.FindingDrifted:
		return "Take the change back, or set driftPolicy: Correct in the template: " + diff + "."
	case populate.FindingUndeclared:
		return "Declare the object in a template, or delete it."
	case populate.FindingFought:
		return "Stop the client that changes the object, declare what it writes, or set driftPolicy: Report: " + diff + "."
	case populate.FindingAltered:
		return "Exempt the object from the webhook or policy that changes it, or declare what that writes. The operator " +
			"then applies it again."
	case populate.FindingGrantStays:
		return "Delete the object, unless its users should keep the rights that it grants. For a Role, you need the verb " +
			"patch on its template."
	case populate.FindingLeftOut, populate.FindingDeclaredTwice:
		return "The namespace is populated without this object. Change the template if the object should exist."
	}
	return cmp.Or(survey.Remedy(f.Namespace, f.Reason),
		"Correct the object or its template. The operator then tries again: "+diff+".")
}

// bySeverity orders findings: the worst first, those about the whole cluster before those about namespaces.
func bySeverity(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Template, b.Template),
		strings.Compare(a.Object, b.Object))
}
