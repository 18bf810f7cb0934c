package populate

import (
	"regexp"

	corev1 "k8s.io/api/core/v1"
)

// Reported is a finding as the message of a Populated condition contains it.
type Reported struct {
	// Object is the text of an ObjectID, such as configmap/settings.
	Object string
	// Template is set for a failure that keeps the namespace from being populated.
	Template string
	Message  string
}

// reportedObject matches the begin of a finding about an object in the message of a condition: see Finding.String.
var reportedObject = regexp.MustCompile(`(?:^|; )([a-z0-9.-]+/[^\s;]+?)(?: of template ([^\s;]+?))?: `)

// ReportedFindings returns the findings about objects that a Populated condition, which may be nil, contains. The
// message of the condition may have been shortened, so there can be more.
func ReportedFindings(condition *corev1.NamespaceCondition) []Reported {
	if condition == nil {
		return nil
	}
	var findings []Reported
	begins := reportedObject.FindAllStringSubmatchIndex(condition.Message, -1)
	for i, at := range begins {
		end := len(condition.Message)
		if i+1 < len(begins) {
			end = begins[i+1][0]
		}
		finding := Reported{Object: condition.Message[at[2]:at[3]], Message: condition.Message[at[1]:end]}
		if at[4] >= 0 {
			finding.Template = condition.Message[at[4]:at[5]]
		}
		findings = append(findings, finding)
	}
	return findings
}
