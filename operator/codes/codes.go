// Package codes holds the codes with which the messages of admission end, such as "(nstpl:held)", and explains each of
// them. Programs can rely on the codes, unlike on the words of a message.
package codes

import (
	"regexp"
	"slices"
)

// Code identifies a reason why admission denies or delays a request.
type Code string

// The codes. Explain explains each of them.
const (
	Held             Code = "held"
	PopulationFailed Code = "population-failed"

	ConstraintDenied   Code = "constraint-denied"
	ConstraintRequired Code = "constraint-required"
	ConstraintRecord   Code = "constraint-record"
	ConstraintChanged  Code = "constraint-changed"
	ConstraintAccount  Code = "constraint-account"

	AttributeProtected Code = "attribute-protected"
	AttributeRule      Code = "attribute-rule"
	AttributesFull     Code = "attributes-full"

	QuotaExceeded       Code = "quota-exceeded"
	QuotaUncounted      Code = "quota-uncounted"
	CreatorQuota        Code = "creator-quota"
	UsageQuota          Code = "usage-quota"
	PolicySpaceUse      Code = "policyspace-use"
	PolicySpaceNotFound Code = "policyspace-not-found"
	PolicySpaceInUse    Code = "policyspace-in-use"
	PolicySpaceInvalid  Code = "policyspace-invalid"
	SelfService         Code = "self-service"
	Expiry              Code = "expiry"

	TemplateUse     Code = "template-use"
	TemplateInvalid Code = "template-invalid"
	TemplateAuthor  Code = "template-author"
	OptOut          Code = "opt-out"
	Exemption       Code = "exemption"

	Creator           Code = "creator"
	Initialization    Code = "initialization"
	ManagedNamespace  Code = "managed-namespace"
	ReservedNamespace Code = "reserved-namespace"
	NamespaceFinalize Code = "namespace-finalize"
	NamespaceOwner    Code = "namespace-owner"
	ManagedObject     Code = "managed-object"
	Adoption          Code = "adoption"
	OperatorRole      Code = "operator-role"
	TrialNamespace    Code = "trial-namespace"

	DeletionProtected  Code = "deletion-protected"
	DeletionProtection Code = "deletion-protection"

	InvalidObject Code = "invalid-object"
	SelectorsFull Code = "selectors-full"
	Busy          Code = "busy"
	Undecided     Code = "undecided"
	InternalCheck Code = "internal-check"
)

// AddTo returns a message that ends in the code.
func (c Code) AddTo(message string) string {
	return message + " (nstpl:" + string(c) + ")"
}

var (
	inText = regexp.MustCompile(`\(nstpl:([a-z]+(?:-[a-z]+)*)\)`)
	atEnd  = regexp.MustCompile(` ?` + inText.String() + `\s*$`)
)

// Find returns the codes in a text, each once. The last code in the text is the first of the result: a message can
// quote another one, and ends in its own code.
func Find(text string) []Code {
	var found []Code
	for _, match := range slices.Backward(inText.FindAllStringSubmatch(text, -1)) {
		if code := Code(match[1]); !slices.Contains(found, code) {
			found = append(found, code)
		}
	}
	return found
}

// Trim returns a message without the code at its end.
func Trim(message string) string {
	return atEnd.ReplaceAllString(message, "")
}
