package report

import (
	"cmp"
	"encoding/xml"
	"io"
	"strings"
	"time"

	"nstpl.dev/nstpl/plugin/internal/output"
	"nstpl.dev/nstpl/plugin/internal/survey"
)

type junitSuites struct {
	XMLName xml.Name     `xml:"testsuites"`
	Suites  []junitSuite `xml:"testsuite"`
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

// writeJUnit writes a test suite for each cluster.
func writeJUnit(w io.Writer, reports []Report, hasContexts bool) error {
	var suites junitSuites
	for i := range reports {
		name := "nstpl"
		if hasContexts {
			name = output.Escape(reports[i].Cluster)
		}
		suites.Suites = append(suites.Suites, suiteOf(&reports[i], name))
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	encoder := xml.NewEncoder(w)
	encoder.Indent("", "  ")
	if err := encoder.Encode(suites); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// suiteOf returns a test case for each namespace, and one for the rest of the cluster. A namespace that no template
// populates is skipped, and so is a new one that waits for initializers.
func suiteOf(r *Report, name string) junitSuite {
	suite := junitSuite{
		Name: name, Timestamp: r.Time.UTC().Format("2006-01-02T15:04:05"), Notes: strings.Join(escapeAll(r.Notes), "\n"),
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
		c := caseOf(ns, findings[ns.Name], r.Time)
		c.Exemptions = strings.Join(escapeAll(exempt[ns.Name]), "\n")
		suite.add(c)
	}
	return suite
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

func caseOf(ns Namespace, findings []Finding, now time.Time) junitCase {
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
	case OptedOut, NotReached, NoTemplate, Excluded, Held, Unknown:
		if ns.Reason == reasonInitializing && now.Sub(ns.Created) > survey.Patience {
			c.Failure = &junitMessage{Message: message, Type: ns.Reason}
			break
		}
		c.Skipped = &junitMessage{Message: message}
	case Populated:
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
