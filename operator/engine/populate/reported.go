package populate

import (
	"cmp"
	"regexp"
	"slices"
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
	// reportedFight matches the message about an object, or a label or an annotation, that is fought over.
	reportedFight = regexp.MustCompile(`^(?:(?:label|annotation) \S+ )?` + messageFought)
	// reportedCount matches the part of a message that counts the objects, and names the templates if there are any.
	reportedCount = regexp.MustCompile(`^\d+ objects?(?: of |$)`)
)

// moreFindings ends the message of a condition that has no room for all findings.
const moreFindings = "; …"

// shortestPart is the length in bytes to which a part of a message may be cut, so that others have room.
const shortestPart = 200

// Message returns the message of a Populated condition: parts such as the count of objects, and the findings above
// Info. If it would be longer than limit, in bytes, long parts are cut, so that ReportedFindings returns as many
// findings as possible: failures first, then drift.
func Message(parts []string, findings []Finding, limit int) string {
	if whole := strings.Join(slices.Concat(parts, texts(findings)), "; "); len(whole) <= limit {
		return whole
	}
	parts = slices.Concat(parts, texts(slices.SortedStableFunc(slices.Values(findings), func(a, b Finding) int {
		return cmp.Compare(rank(a.Severity, a.Reason), rank(b.Severity, b.Reason))
	})))
	limit -= len(moreFindings)
	message := ""
	for i, part := range cutTo(parts, limit) {
		if i > 0 {
			part = "; " + part
		}
		if len(message)+len(part) > limit {
			return message + moreFindings
		}
		message += part
	}
	return message
}

// cutTo cuts the longest parts to one length, so that all fit into a message, or to shortestPart.
func cutTo(parts []string, limit int) []string {
	var cut []string
	for longest, size := limit, limit+1; size > limit && longest >= shortestPart; longest -= 10 {
		cut, size = nil, 0
		for _, part := range parts {
			if len(part) > longest {
				part = strings.ToValidUTF8(part[:longest-len("…")], "") + "…"
			}
			cut, size = append(cut, part), size+len("; ")+len(part)
		}
	}
	return cut
}

// texts returns the findings above Info as the message of a condition contains them.
func texts(findings []Finding) []string {
	var texts []string
	for _, finding := range findings {
		if finding.Severity > Info {
			texts = append(texts, finding.String())
		}
	}
	return texts
}

// rank orders findings in a message that has no room for all: failures, drift, other warnings.
func rank(severity Severity, reason string) int {
	switch {
	case severity == Error:
		return 0
	case IsDrift(reason) && reason != FindingAltered: // which is a failure, too
		return 1
	case slices.Contains([]string{
		FindingCreatorUnknown, FindingRoleOverridden, FindingLeftOut, FindingDeclaredTwice, FindingProtected,
		FindingGrantStays,
	}, reason):
		return 2
	}
	return 0
}

// IsShortened reports whether a Populated condition, which may be nil, had no room for all findings.
func IsShortened(condition *corev1.NamespaceCondition) bool {
	return condition != nil && strings.HasSuffix(condition.Message, moreFindings)
}

// MayLackDrift reports whether a Populated condition, which may be nil, had no room for all failures, after which drift
// would come.
func MayLackDrift(condition *corev1.NamespaceCondition) bool {
	findings := ReportedFindings(condition)
	return IsShortened(condition) && (len(findings) == 0 ||
		rank(findings[len(findings)-1].Severity, findings[len(findings)-1].Reason) == 0)
}

// ReportedFindings returns the findings that a Populated condition, which may be nil, contains; IsShortened reports
// whether there are more. The message has a semicolon between two findings; a part that does not begin with an object
// belongs to the finding before it.
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
	case reportedFight.MatchString(message):
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
