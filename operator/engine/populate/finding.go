package populate

import (
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// Severity says what a finding means for its namespace.
type Severity int

// The severities.
const (
	// Exempt is for objects that the namespace is exempt from. They are not problems, and only audits list them.
	Exempt Severity = iota - 1
	// Info is for changes that the operator made. No user needs to act on them.
	Info
	// Warning is for problems that do not keep the namespace from being populated.
	Warning
	// Error is for problems that keep the namespace from being populated.
	Error
)

// Reasons of findings. The Events about them have the same reasons.
const (
	FindingFailed            = "ObjectFailed"
	FindingWaitsForRole      = "WaitsForRole"
	FindingBrokenTemplate    = "TemplateNotAccepted"
	FindingValueMissing      = "ValueMissing"
	FindingCreatorUnknown    = "CreatorUnknown"
	FindingRoleOverridden    = "RoleOverridden"
	FindingDeclaredTwice     = "DeclaredTwice"
	FindingSelects           = "LabelSelects"
	FindingUndeclared        = "Undeclared"
	FindingDrifted           = "Drifted"
	FindingUndeclaredDeleted = "UndeclaredDeleted"
	FindingDriftCorrected    = "DriftCorrected"
	FindingProtected         = "Protected"
	FindingExempt            = "Exempt"
	FindingGrantStays        = "GrantStays"
	FindingFought            = "ChangedAgain"
	FindingAltered           = "Altered"
	FindingOverwritten       = "DriftOverwritten"
)

// IsDrift reports whether warnings of a reason are about an object that is not as declared now: another client changed,
// deleted or added it, or admission alters it.
func IsDrift(reason string) bool {
	return slices.Contains([]string{FindingDrifted, FindingUndeclared, FindingFought, FindingAltered}, reason)
}

// Finding is something that a user should know about a namespace or one of its objects.
type Finding struct {
	// Object is empty if the finding is about a template as a whole.
	Object   ObjectID
	Template string
	Severity Severity
	// Reason is one of the reasons above.
	Reason string
	// Message describes the finding without the name of the object.
	Message string
	// Failure classifies a write that failed; metrics count failures by it. It is empty for other findings.
	Failure metav1.StatusReason
	// MayPass says that the finding is a failure that may pass by itself: the operator tries again, and may succeed
	// although no person acts.
	MayPass bool
	// IsLocal says that the finding is a failure that a user of the namespace can cause, and that says nothing about
	// the template.
	IsLocal bool
}

// messageCorrected begins messages about an object or a label after a change of another client was undone.
const messageCorrected = "was applied again: "

// Beginnings of messages, by which ReportedFindings knows the reasons of findings again.
const (
	messageDrifted       = "drifted: "
	messageLeftOut       = "left out: "
	messageUndeclared    = "no template declares it"
	messageDeclaredTwice = "declared by templates "
	messageProtected     = "is kept, because it is protected from deletion"
	messageGrantStays    = "stays, although no template declares it: "
	messageFought        = "is changed again and again by "
	messageAltered       = "is not stored as it is declared: "
)

// String returns the finding as a sentence that names the object, and for an error also the template.
func (f Finding) String() string {
	switch {
	case f.Object == (ObjectID{}):
		return f.Message
	case f.Severity == Error && f.Template != "":
		return fmt.Sprintf("%s of template %s: %s", f.Object, f.Template, f.Message)
	}
	return fmt.Sprintf("%s: %s", f.Object, f.Message)
}

// Findings returns what a user should know about a namespace after a plan was carried out: failures first, then broken
// templates, drift, and declared objects that are not applied or exempt. With an empty result, it returns what is known
// from the plan alone.
func Findings(plan Plan, result Result) []Finding {
	var findings []Finding
	for _, outcome := range result.Outcomes {
		findings = append(findings, outcomeFindings(outcome)...)
	}
	for _, broken := range plan.Broken {
		finding := Finding{
			Template: broken.Template.Name, Severity: severity(broken.Template), Reason: FindingBrokenTemplate,
			Message: broken.Err.Error(),
		}
		if _, isMissing := errors.AsType[*render.MissingError](broken.Err); isMissing {
			finding.Reason = FindingValueMissing
		}
		findings = append(findings, finding)
	}
	for _, change := range plan.Changes {
		if change.Metadata != nil && !result.wrote(change) {
			findings = append(findings, metadataFindings(change, nil, false)...)
			continue
		}
		if change.SourceLost != nil {
			findings = append(findings, sourceFinding(change))
		}
		if finding, differs := differenceFinding(change); differs {
			findings = append(findings, finding)
		}
	}
	for _, omission := range plan.Omitted {
		findings = append(findings, Finding{
			Object: ObjectID{GroupKind: omission.Kind.GroupKind(), Name: omission.Name}, Template: omission.Template,
			Severity: Warning, Reason: FindingCreatorUnknown, Message: messageLeftOut + omission.Reason,
		})
	}
	for _, withheld := range plan.Withheld {
		findings = append(findings, Finding{
			Object: withheld.Object.ID(), Template: withheld.Object.Template.Name,
			Severity: Warning, Reason: FindingRoleOverridden, Message: messageLeftOut + withheld.Reason(),
		})
	}
	for _, overridden := range plan.Overridden {
		findings = append(findings, overridden.Finding())
	}
	for _, exempt := range plan.Exempt {
		findings = append(findings, exempt.finding())
	}
	return findings
}

// outcomeFindings returns the findings about a write: that it failed, or that it reverted a change of another client.
func outcomeFindings(outcome Outcome) []Finding {
	if outcome.Metadata != nil {
		return metadataFindings(outcome.Change, outcome.Failure, true)
	}
	finding := Finding{Object: outcome.ID(), Template: outcome.Template, Severity: Info, Message: outcome.Reason}
	switch {
	case outcome.Failure != nil:
		finding.Severity, finding.Reason, finding.Message = Warning, FindingFailed, outcome.Failure.Error()
		finding.Failure, finding.MayPass = outcome.Failure.Reason, outcome.Failure.MayPass()
		finding.IsLocal = outcome.Failure.IsLocal()
		switch outcome.Failure.Reason {
		case ReasonWaitsForRole:
			finding.Reason = FindingWaitsForRole
		case ReasonAltered:
			finding.Reason = FindingAltered
		}
		if isFatal(outcome) {
			finding.Severity = Error
		}
	case outcome.Undeclared:
		finding.Reason, finding.Message = FindingUndeclaredDeleted, "was deleted: "+outcome.Reason
	case outcome.Drifted:
		finding.Reason, finding.Message = FindingDriftCorrected, messageCorrected+outcome.Reason
	case outcome.Overwrites != "":
		finding.Reason = FindingOverwritten
	default:
		return nil
	}
	return []Finding{finding}
}

// differenceFinding returns the finding about an object that is not changed: it differs from the templates, is
// protected from deletion, or keeps a grant that no template declares.
func differenceFinding(change Change) (finding Finding, differs bool) {
	finding = Finding{Object: change.ID(), Template: change.Template, Severity: Warning}
	switch {
	case change.Postponed: // see Fought
		return finding, false
	case change.Protected:
		finding.Reason, finding.Message = FindingProtected, change.Reason
	case change.KeepsGrant() && !change.Undeclared:
		finding.Reason, finding.Message = FindingGrantStays, messageGrantStays+change.Reason
	case change.Action != LeaveAlone || !change.Differs():
		return finding, false
	case change.Undeclared:
		finding.Reason, finding.Message = FindingUndeclared, change.Reason
	default:
		finding.Reason, finding.Message = FindingDrifted, messageDrifted+change.Reason
	}
	return finding, true
}

// isFatal reports whether a failure keeps the namespace from being populated. If an object cannot be pruned, the
// namespace still has every declared object, so that failure is fatal only if the object may grant rights. An object
// that admission altered exists, so that failure is fatal only if the object grants rights or restricts users.
func isFatal(outcome Outcome) bool {
	if outcome.Failure.Reason == ReasonAltered && !outcome.Protects() {
		return false
	}
	return outcome.Failure.Reason == ReasonHeldByFinalizer ||
		outcome.Declared != nil && severity(outcome.Declared.Template) == Error
}

// severity returns the severity of findings about a template or an object of it that cannot be applied.
func severity(template *v1alpha1.NamespaceTemplate) Severity {
	if template.Spec.FailurePolicy == v1alpha1.FailureIgnore {
		return Warning
	}
	return Error
}
