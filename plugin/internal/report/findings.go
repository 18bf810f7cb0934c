package report

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"nstpl.dev/nstpl/operator/engine/populate"
)

// finding matches a finding about an object in the message of a Populated condition, as populate.Finding writes it:
// the object, the template if the finding keeps the namespace from being populated, and the message.
var finding = regexp.MustCompile(`^([a-z0-9.-]+/\S+?)(?: of template (\S+))?: ((?s).*)$`)

// declared matches the part of a message that counts the objects and names the templates.
var declared = regexp.MustCompile(`^\d+ objects of `)

// reasonLeftOut is the reason of findings about objects that a template declares and that are not applied.
const reasonLeftOut = "LeftOut"

// findingsOf returns the findings in the Populated condition of a namespace. The condition has them as sentences, with
// a semicolon between two. A part of a message that does not begin with an object belongs to the one before.
func findingsOf(namespace string, condition *corev1.NamespaceCondition) []Finding {
	var findings []Finding
	for part := range strings.SplitSeq(condition.Message, "; ") {
		found := finding.FindStringSubmatch(part)
		switch {
		case declared.MatchString(part):
		case found != nil:
			findings = append(findings, newFinding(condition, found[1], found[2], found[3]))
		case len(findings) > 0:
			findings[len(findings)-1].Message += "; " + part
		default:
			findings = append(findings, newFinding(condition, "", "", part))
		}
	}
	for i := range findings {
		findings[i].Namespace = namespace
		findings[i].Remedy = remedy(findings[i])
	}
	return findings
}

// newFinding classifies a finding by its message.
func newFinding(condition *corev1.NamespaceCondition, object, template, message string) Finding {
	found := Finding{
		Severity: Warning, Template: template, Object: object, Reason: populate.FindingFailed, Message: message,
		Since: timeOrNil(condition.LastTransitionTime.Time),
	}
	isPopulated := condition.Status == corev1.ConditionTrue
	differs, isDrift := strings.CutPrefix(message, "drifted: ")
	switch {
	case template != "" || object == "" && !isPopulated:
		found.Severity, found.Reason = Failure, condition.Reason
	case isDrift:
		found.Severity, found.Reason, found.Message = Drift, populate.FindingDrifted, differs
	case strings.HasPrefix(message, "no template declares it"):
		found.Severity, found.Reason = Drift, populate.FindingUndeclared
	case strings.HasPrefix(message, "left out: "):
		found.Reason = reasonLeftOut
	case strings.HasPrefix(message, "declared by templates "):
		found.Reason = populate.FindingDeclaredTwice
	case object == "":
		found.Reason = populate.FindingBrokenTemplate
	}
	return found
}

func timeOrNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// remedy says what to do about a finding of a namespace.
func remedy(f Finding) string {
	diff := fmt.Sprintf("'kubectl nstpl diff %s' shows the difference", f.Namespace)
	switch f.Reason {
	case populate.ConditionRetrying:
		return "The operator tries again by itself. If the failure lasts, look at the operator's log."
	case populate.ConditionTemplateNotAccepted:
		return "Correct the template: 'kubectl get nstpl' shows which ones are not accepted, and why."
	case populate.ConditionPolicySpaceNotFound:
		return "Create the policy space, or correct the label policy.nstpl.dev/policyspace of the namespace."
	case populate.ConditionNotAdopted:
		return "Look at 'kubectl nstpl diff " + f.Namespace + "', then annotate the namespace with " +
			"policy.nstpl.dev/adopt=true, or take it out of the policy space."
	case populate.FindingDrifted:
		return "Take the change back, or set driftPolicy: Correct in the template: " + diff + "."
	case populate.FindingUndeclared:
		return "Declare the object in a template, or delete it."
	case reasonLeftOut, populate.FindingDeclaredTwice:
		return "The namespace is populated without this object. Change the template if the object should exist."
	}
	return "Correct the object or its template. The operator then tries again: " + diff + "."
}

// bySeverity orders findings: the worst first, those about the whole cluster before those about namespaces.
func bySeverity(a, b Finding) int {
	return cmp.Or(
		cmp.Compare(slices.Index(severities, a.Severity), slices.Index(severities, b.Severity)),
		strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Template, b.Template),
		strings.Compare(a.Object, b.Object))
}
