package why

import (
	"slices"
	"strings"

	"nstpl.dev/nstpl/operator/codes"
	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// answer says why an object is as it is, or why a request was denied.
type answer struct {
	// Subject is the object, such as namespace/team-a, or "message".
	Subject string `json:"subject"`
	// Namespace is that of the object, or empty.
	Namespace string `json:"namespace,omitempty"`
	// Allowed reports whether a request for the object would be allowed. It is nil if no request was tried, or if a dry
	// run did not show it.
	Allowed *bool `json:"allowed,omitempty"`
	// PodsAllowed reports whether the pods of a workload would be allowed. It is nil if that is unknown, or if the
	// object has no pods.
	PodsAllowed *bool  `json:"podsAllowed,omitempty"`
	Summary     string `json:"summary"`
	// Codes are those in the message, the outermost first.
	Codes []codes.Code `json:"codes,omitempty"`
	Facts []fact       `json:"facts"`
	// unpopulated is why the operator leaves all objects in the namespace as they are, or empty.
	unpopulated string
	// leftAlone is why the operator leaves the object as it is, although its template declares it, or empty.
	leftAlone string
	// refused is why 'kubectl nstpl restore' would refuse the object, or empty.
	refused string
	// delay is which changes of sources the operator copies later, or empty. The template of the object has them.
	delay string
	// expected is why an object that does not exist is expected, or empty.
	expected string
	// declared are the objects that templates declare in the namespace of the object, as an ObjectID prints them.
	declared []string
	// awaited are the templates that select a namespace and whose rollouts have not reached it.
	awaited []string
	// lacksExemptions reports whether exemptions of the object are unknown, because the caller may not read them.
	lacksExemptions bool
}

// fact is a labeled part of an answer.
type fact struct {
	Label string `json:"label"`
	Text  string `json:"text"`
}

// The labels of facts, in the order in which answers have them.
const (
	labelMessage       = "Message"
	labelOperator      = "Operator"
	labelState         = "State"
	labelDeclaredBy    = "Declared by"
	labelTemplate      = "Template"
	labelPolicySpace   = "Policy space"
	labelCreatedBy     = "Created by"
	labelChangedBy     = "Changed by"
	labelDecidedBy     = "Decided by"
	labelNow           = "Now"
	labelRemedy        = "What to do"
	labelAdministrator = "Administrator"
)

var order = []string{
	labelOperator, labelMessage, labelState, labelDeclaredBy, labelTemplate, labelPolicySpace, labelCreatedBy,
	labelChangedBy,
	labelDecidedBy, labelNow, labelRemedy, labelAdministrator,
}

// add adds a fact unless its text is empty or the answer has it already.
func (a *answer) add(label, text string) {
	if f := (fact{label, text}); text != "" && !slices.Contains(a.Facts, f) {
		a.Facts = append(a.Facts, f)
	}
}

// replace replaces the facts with a label by one.
func (a *answer) replace(label, text string) {
	a.Facts = slices.DeleteFunc(a.Facts, func(f fact) bool { return f.Label == label })
	a.add(label, text)
}

// fill replaces a placeholder in what to do, such as namespace/NAME in a command.
func (a *answer) fill(placeholder, value string) {
	for i := range a.Facts {
		if label := a.Facts[i].Label; label == labelRemedy || label == labelAdministrator {
			a.Facts[i].Text = strings.ReplaceAll(a.Facts[i].Text, placeholder, value)
		}
	}
}

// include adds the facts of another answer, except for what to do.
func (a *answer) include(other answer) {
	for _, f := range other.Facts {
		if f.Label != labelRemedy && f.Label != labelAdministrator {
			a.add(f.Label, f.Text)
		}
	}
}

// sort sorts the facts by their labels.
func (a *answer) sort() {
	slices.SortStableFunc(a.Facts, func(x, y fact) int {
		return slices.Index(order, x.Label) - slices.Index(order, y.Label)
	})
	if a.Facts == nil {
		a.Facts = []fact{}
	}
}

// print prints the answer as text: the summary, and an indented line for each fact. A label is printed once.
func (a *answer) print(s cli.Session) {
	output.Line(s.Out, "%s", a.Summary)
	width := 0
	for _, f := range a.Facts {
		width = max(width, len(f.Label))
	}
	previous := ""
	for _, f := range a.Facts {
		label := f.Label + ":"
		if f.Label == previous {
			label = ""
		}
		previous = f.Label
		for line := range strings.SplitSeq(s.Commands(f.Text), "\n") {
			output.Line(s.Out, "  %-*s  %s", width+1, label, line)
			label = ""
		}
	}
}
