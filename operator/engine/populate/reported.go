package populate

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// FindingLeftOut is the reason of a Reported finding whose reason was FindingCreatorUnknown or FindingRoleOverridden.
const FindingLeftOut = "LeftOut"

// Reported is a finding as the message of a Populated condition contains it.
type Reported struct {
	// Object is the text of an ObjectID, such as configmap/settings. It is empty if the finding is not about an object.
	Object string
	// Template is set for a failure that keeps the namespace from being populated.
	Template string
	Severity Severity
	// Reason is a reason of findings. If the finding is an error, it is the reason of the condition.
	Reason  string
	Message string
}

var (
	// reportedObject matches a finding about an object: see Finding.String.
	reportedObject = regexp.MustCompile(`^(?s)([a-z0-9.-]+/\S+?)(?: of template (\S+?))?: (.*)$`)
	// reportedTemplate matches a finding about a template that cannot be rendered.
	reportedTemplate = regexp.MustCompile(`^template [a-z0-9.-]+: `)
	// reportedCount matches the part of a message that counts the objects, and names the templates if there are any.
	reportedCount = regexp.MustCompile(`^\d+ objects?(?: of |$)`)
)

// ReportedFindings returns the findings that a Populated condition, which may be nil, contains. The message of the
// condition may have been shortened, so there can be more. The message has a semicolon between two findings; a part
// that does not begin with an object belongs to the finding before it.
func ReportedFindings(condition *corev1.NamespaceCondition) []Reported {
	if condition == nil {
		return nil
	}
	var findings []Reported
	for part := range strings.SplitSeq(condition.Message, "; ") {
		object := reportedObject.FindStringSubmatch(part)
		switch {
		case part == "" || reportedCount.MatchString(part):
		case object != nil:
			findings = append(findings, newReported(condition, object[1], object[2], object[3]))
		case len(findings) > 0 && !reportedTemplate.MatchString(part):
			findings[len(findings)-1].Message += "; " + part
		default:
			findings = append(findings, newReported(condition, "", "", part))
		}
	}
	return findings
}

// newReported classifies a finding by its message.
func newReported(condition *corev1.NamespaceCondition, object, template, message string) Reported {
	reported := Reported{
		Object: object, Template: template, Severity: Warning, Reason: FindingFailed, Message: message,
	}
	isPopulated := condition.Status == corev1.ConditionTrue
	switch {
	case template != "" && condition.Reason == ConditionTemplateNotAccepted:
		reported.Severity = Error // the reason is that of another finding
	case template != "" || object == "" && !isPopulated:
		reported.Severity, reported.Reason = Error, condition.Reason
	case strings.HasPrefix(message, messageDrifted):
		reported.Reason = FindingDrifted
	case strings.HasPrefix(message, messageUndeclared):
		reported.Reason = FindingUndeclared
	case strings.HasPrefix(message, messageLeftOut):
		reported.Reason = FindingLeftOut
	case strings.HasPrefix(message, messageProtected):
		reported.Reason = FindingProtected
	case strings.HasPrefix(message, messageGrantStays):
		reported.Reason = FindingGrantStays
	case strings.HasPrefix(message, messageFought):
		reported.Reason = FindingFought
	case strings.HasPrefix(message, messageAltered):
		reported.Reason = FindingAltered
	case strings.HasPrefix(message, messageDeclaredTwice):
		reported.Reason = FindingDeclaredTwice
	case object == "":
		reported.Reason = FindingBrokenTemplate
	}
	return reported
}

// Cause returns the message without the word that only repeats the reason: what changed, if the object drifted.
func (r Reported) Cause() string { return strings.TrimPrefix(r.Message, messageDrifted) }
