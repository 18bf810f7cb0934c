package check

import (
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/printers"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// Status is the result of a check.
type Status string

// The statuses. Unknown means that the user may not read what the check needs, that it could not be read, or that the
// command cannot judge it.
const (
	OK      Status = "ok"
	Warning Status = "warning"
	Failure Status = "failure"
	Unknown Status = "unknown"
)

// Result is what a check found. A check can have several results.
type Result struct {
	// Check is the id of the check, such as operator-leader.
	Check  string `json:"check"`
	Status Status `json:"status"`
	// Object is the object that the result is about, such as lease.coordination.k8s.io/nstpl-operator, if it is one.
	Object  string `json:"object,omitempty"`
	Message string `json:"message"`
	// Remedy is what to do. It is empty if the status is ok.
	Remedy string `json:"remedy,omitempty"`
}

// Report is what the command prints as JSON and YAML.
type Report struct {
	metav1.TypeMeta `json:",inline"`
	// Context is that of the kubeconfig, or empty without --contexts.
	Context string `json:"context,omitempty"`
	// Time is on the clock of the API server.
	Time metav1.Time `json:"time"`
	// Checked is before or after: whether the checks are those before an installation or those of an installation.
	Checked  string   `json:"checked"`
	Versions Versions `json:"versions"`
	Summary  Summary  `json:"summary"`
	// Results are not null.
	Results []Result `json:"results"`
}

// Versions are those of the programs.
type Versions struct {
	Plugin    string `json:"plugin"`
	GitCommit string `json:"gitCommit,omitempty"`
	Platform  string `json:"platform"`
	// Operator is the version of the operator that leads. It is empty if it is unknown.
	Operator string `json:"operator,omitempty"`
	// OperatorImage is the image in the Deployment of the operator.
	OperatorImage string `json:"operatorImage,omitempty"`
	Server        string `json:"server"`
}

// Summary counts results by their status.
type Summary struct {
	OK       int `json:"ok"`
	Warnings int `json:"warnings"`
	Failures int `json:"failures"`
	Unknown  int `json:"unknown"`
}

// judgement collects the results of a check.
type judgement struct {
	check   string
	results []Result
}

// report adds a result.
func (j *judgement) report(status Status, message, remedy string) {
	j.results = append(j.results, Result{Check: j.check, Status: status, Message: message, Remedy: remedy})
}

// add adds a result that names the first few of some objects, unless there are none.
func (j *judgement) add(status Status, message string, objects []string, remedy string) {
	if len(objects) > 0 {
		j.report(status, message+": "+output.FirstFew(objects), remedy)
	}
}

// orOK returns the results, or one with a message that says what is in order if there are none.
func (j *judgement) orOK(message string) []Result {
	if len(j.results) == 0 {
		return []Result{{Check: j.check, Status: OK, Message: message}}
	}
	return j.results
}

func newReport(results []Result) Report {
	report := Report{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "CheckReport"},
		Results:  append([]Result{}, results...),
	}
	for i := range results {
		switch results[i].Status {
		case OK:
			report.Summary.OK++
		case Warning:
			report.Summary.Warnings++
		case Failure:
			report.Summary.Failures++
		case Unknown:
			report.Summary.Unknown++
		}
	}
	return report
}

// String returns the counts that are not zero.
func (s Summary) String() string {
	counts := []string{fmt.Sprintf("%d OK", s.OK)}
	if s.Warnings > 0 {
		counts = append(counts, output.Count(s.Warnings, "warning"))
	}
	if s.Failures > 0 {
		counts = append(counts, output.Count(s.Failures, "failure"))
	}
	if s.Unknown > 0 {
		counts = append(counts, fmt.Sprintf("%d unknown", s.Unknown))
	}
	return strings.Join(counts, ", ")
}

// ref names an object of the cluster.
type ref struct {
	kind            schema.GroupVersionKind
	namespace, name string
}

// String returns the kind and the name in kubectl's notation.
func (r ref) String() string { return output.Object(r.kind.GroupKind(), r.name) }

// wordsFor returns what stands for each status at the beginning of a line: a mark on a terminal that can show colors,
// and so most likely other characters too, or else a word. All of them have the same width.
func wordsFor(out io.Writer) map[Status]string {
	if printers.IsTerminal(out) && printers.AllowsColorOutput(out) {
		return map[Status]string{OK: "✓", Warning: "!", Failure: "✗", Unknown: "?"}
	}
	return map[Status]string{OK: "OK     ", Warning: "WARNING", Failure: "FAILURE", Unknown: "UNKNOWN"}
}
