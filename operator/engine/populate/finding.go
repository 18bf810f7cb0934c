package populate

import (
	"fmt"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// Severity says what a finding means for its namespace.
type Severity int

// The severities.
const (
	// Info is for what the operator did, and nobody has to do anything about.
	Info Severity = iota
	// Warning is for what a user should know. It does not keep the namespace from being populated.
	Warning
	// Error keeps the namespace from being populated.
	Error
)

// Reasons of findings. They are the reasons of the Events, too.
const (
	FindingFailed            = "ObjectFailed"
	FindingWaitsForRole      = "WaitsForRole"
	FindingBrokenTemplate    = "TemplateNotAccepted"
	FindingCreatorUnknown    = "CreatorUnknown"
	FindingRoleOverridden    = "RoleOverridden"
	FindingDeclaredTwice     = "DeclaredTwice"
	FindingUndeclared        = "Undeclared"
	FindingDrifted           = "Drifted"
	FindingUndeclaredDeleted = "UndeclaredDeleted"
	FindingDriftCorrected    = "DriftCorrected"
)

// Finding is something that a user should know about a namespace.
type Finding struct {
	// Object is empty if the finding is about a template as a whole.
	Object   ObjectID
	Template string
	Severity Severity
	// Reason is one of the reasons above.
	Reason string
	// Message does not name the object.
	Message string
}

// String returns the finding as a sentence that names the object.
func (f Finding) String() string {
	if f.Object == (ObjectID{}) {
		return f.Message
	}
	return fmt.Sprintf("%s: %s", f.Object, f.Message)
}

// Findings returns what a user should know about a namespace after a plan was carried out: failures first, then broken
// templates, drift, and declared objects that are not applied. With an empty result, it returns what is known from the
// plan alone.
func Findings(plan Plan, result Result) []Finding {
	var findings []Finding
	for _, outcome := range result.Outcomes {
		findings = append(findings, outcomeFindings(outcome)...)
	}
	for _, broken := range plan.Broken {
		findings = append(findings, Finding{
			Template: broken.Template.Name, Severity: severity(broken.Template), Reason: FindingBrokenTemplate,
			Message: broken.Err.Error(),
		})
	}
	for _, change := range plan.Changes {
		if finding, differs := differenceFinding(change); differs {
			findings = append(findings, finding)
		}
	}
	for _, omission := range plan.Omitted {
		findings = append(findings, Finding{
			Object: ObjectID{omission.Kind.GroupKind(), omission.Name}, Template: omission.Template,
			Severity: Warning, Reason: FindingCreatorUnknown, Message: "left out: " + omission.Reason,
		})
	}
	for _, withheld := range plan.Withheld {
		findings = append(findings, Finding{
			Object: withheld.Object.ID(), Template: withheld.Object.Template.Name,
			Severity: Warning, Reason: FindingRoleOverridden, Message: "left out: " + withheld.Reason(),
		})
	}
	for _, overridden := range plan.Overridden {
		findings = append(findings, overridden.Finding())
	}
	return findings
}

// outcomeFindings returns the findings about a write: that it failed, or that it undid what another client did.
func outcomeFindings(outcome Outcome) []Finding {
	finding := Finding{Object: outcome.ID(), Template: outcome.Template, Severity: Info, Message: outcome.Reason}
	switch {
	case outcome.Failure != nil:
		finding.Severity, finding.Reason, finding.Message = Warning, FindingFailed, outcome.Failure.Error()
		if outcome.Failure.Reason == ReasonWaitsForRole {
			finding.Reason = FindingWaitsForRole
		}
		if isFatal(outcome) {
			finding.Severity = Error
		}
	case outcome.Undeclared:
		finding.Reason = FindingUndeclaredDeleted
	case outcome.Drifted:
		finding.Reason = FindingDriftCorrected
	default:
		return nil
	}
	return []Finding{finding}
}

// differenceFinding returns the finding about an object that differs and is left as it is.
func differenceFinding(change Change) (finding Finding, differs bool) {
	finding = Finding{Object: change.ID(), Template: change.Template, Severity: Warning}
	switch {
	case change.Action != LeaveAlone || !change.Differs():
		return finding, false
	case change.Undeclared:
		finding.Reason, finding.Message = FindingUndeclared, change.Reason
	default:
		finding.Reason, finding.Message = FindingDrifted, "drifted: "+change.Reason
	}
	return finding, true
}

// isFatal reports whether a failure keeps the namespace from being populated. An object that cannot be pruned is too
// much, not too little, so it is fatal only if it grants rights.
func isFatal(outcome Outcome) bool {
	return outcome.Failure.Reason == ReasonHeldByFinalizer ||
		outcome.Declared != nil && severity(outcome.Declared.Template) == Error
}

// severity is that of what a template declares and the operator cannot apply.
func severity(template *v1alpha1.NamespaceTemplate) Severity {
	if template.Spec.FailurePolicy == v1alpha1.FailureIgnore {
		return Warning
	}
	return Error
}
