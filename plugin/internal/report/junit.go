package report

import (
	"cmp"
	"encoding/xml"
	"io"
	"strings"

	"nstpl.dev/nstpl/plugin/internal/output"
)

type junitSuites struct {
	XMLName xml.Name   `xml:"testsuites"`
	Suite   junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name      string      `xml:"name,attr"`
	Timestamp string      `xml:"timestamp,attr"`
	Tests     int         `xml:"tests,attr"`
	Failures  int         `xml:"failures,attr"`
	Errors    int         `xml:"errors,attr"`
	Skipped   int         `xml:"skipped,attr"`
	Cases     []junitCase `xml:"testcase"`
	// Notes are about what is missing in the report.
	Notes string `xml:"system-err,omitempty"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	Failure *junitMessage `xml:"failure"`
	Skipped *junitMessage `xml:"skipped"`
	// Exemptions are those of the namespace, a line for each.
	Exemptions string `xml:"system-out,omitempty"`
}

type junitMessage struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// clusterCase is the name of the test case about the findings without a namespace.
const clusterCase = "templates and policy spaces"

// writeJUnit writes a test case for each namespace, and one for the rest of the cluster. A namespace that no template
// populates is skipped.
func writeJUnit(w io.Writer, r Report) error {
	suite := junitSuite{
		Name: "nstpl", Timestamp: r.Time.UTC().Format("2006-01-02T15:04:05"), Notes: strings.Join(escapeAll(r.Notes), "\n"),
	}
	findings := map[string][]Finding{}
	for _, f := range r.Findings {
		if f.Severity != Warning {
			findings[f.Namespace] = append(findings[f.Namespace], f)
		}
	}
	suite.add(junitCase{Class: "cluster", Name: clusterCase, Failure: failureOf("Failed", findings[""])})
	exempt := byNamespace(r.Exemptions)
	for _, ns := range r.Namespaces {
		c := caseOf(ns, findings[ns.Name])
		c.Exemptions = strings.Join(escapeAll(exempt[ns.Name]), "\n")
		suite.add(c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(junitSuites{Suite: suite}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (s *junitSuite) add(c junitCase) {
	s.Cases, s.Tests = append(s.Cases, c), s.Tests+1
	if c.Failure != nil {
		s.Failures++
	}
	if c.Skipped != nil {
		s.Skipped++
	}
}

func caseOf(ns Namespace, findings []Finding) junitCase {
	c := junitCase{Class: cmp.Or(ns.PolicySpace, "namespaces"), Name: ns.Name}
	message := output.Escape(ns.Message)
	switch ns.State {
	case Drifted:
		c.Failure = failureOf(string(Drifted), findings)
	case Failed, Retrying:
		c.Failure = failureOf(ns.Reason, findings)
		if c.Failure == nil {
			c.Failure = &junitMessage{Message: message, Type: ns.Reason}
		}
	case NotReported:
		c.Failure = &junitMessage{Message: message, Type: ns.Reason}
	case OptedOut, NoTemplate, Excluded, Held:
		c.Skipped = &junitMessage{Message: message}
	case Populated, NotReached:
	}
	return c
}

// failureOf returns the failure that findings are, or nil if there are none.
func failureOf(kind string, findings []Finding) *junitMessage {
	if len(findings) == 0 {
		return nil
	}
	lines := make([]string, 0, len(findings))
	for _, f := range findings {
		lines = append(lines, output.Escape(f.String()))
	}
	return &junitMessage{Message: lines[0], Type: kind, Text: strings.Join(lines, "\n")}
}

// String returns the finding in one line.
func (f Finding) String() string {
	what := f.Object
	if f.Template != "" {
		what = strings.TrimPrefix(what+" of template "+f.Template, " of ")
	}
	return strings.TrimPrefix(what+": ", ": ") + f.Message
}

func escapeAll(texts []string) []string {
	escaped := make([]string, 0, len(texts))
	for _, text := range texts {
		escaped = append(escaped, output.Escape(text))
	}
	return escaped
}
