package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"nstpl.dev/nstpl/test/marks"
)

// event is a line of go test -json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // in seconds
}

// result is how a test, or a package if Test is empty, ended.
type result struct {
	Package string  `json:"package"`
	Test    string  `json:"test,omitempty"`
	Outcome string  `json:"outcome"` // pass, fail or skip
	Seconds float64 `json:"seconds"`
	// Reason is why a test was skipped, or the first lines that say why it failed.
	Reason string `json:"reason,omitempty"`
	// Run is the run of the suite.
	Run string `json:"run"`
}

// name returns the package below the module, and the name of the test.
func (r result) name() string {
	return strings.TrimSpace(strings.TrimPrefix(r.Package, "nstpl.dev/nstpl/") + " " + r.Test)
}

// tally follows the events of go test.
type tally struct {
	run     string
	results []result
	// output is the output of each test, and of each package where the name is empty, until it ends.
	output map[test][]string
	// running are the tests that have begun and not ended.
	running map[test]bool
	// skippedInside are the tests of which a subtest was skipped.
	skippedInside map[test]string
	// failedInside is the output of the failed subtests of a test.
	failedInside map[test][]string
}

func newTally(run string) *tally {
	return &tally{
		run: run, output: map[test][]string{}, running: map[test]bool{}, skippedInside: map[test]string{},
		failedInside: map[test][]string{},
	}
}

// add follows an event, and returns what to print.
func (t *tally) add(e event) string {
	at := test{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		return e.Output
	case "output":
		t.output[at] = append(t.output[at], e.Output)
	case "run":
		t.running[at] = true
	case "pass", "fail", "skip":
		return t.end(at, e)
	}
	return ""
}

func (t *tally) end(at test, e event) string {
	output := t.output[at]
	delete(t.output, at)
	delete(t.running, at)
	top, _, isSubtest := strings.Cut(at.name, "/")
	if isSubtest && e.Action == "skip" {
		t.skippedInside[test{at.pkg, top}] = at.name
	}
	if isSubtest && e.Action == "fail" {
		whole := test{at.pkg, top}
		t.failedInside[whole] = append(t.failedInside[whole], output...)
	}
	if !isSubtest {
		t.results = append(t.results, result{
			Package: e.Package, Test: e.Test, Outcome: e.Action, Seconds: e.Elapsed, Run: t.run,
			Reason: reason(e.Action, slices.Concat(t.failedInside[at], output)),
		})
	}
	switch {
	case e.Test == "" && e.Action == "fail":
		return strings.Join(output, "")
	case e.Test == "" && e.Action == "pass":
		return fmt.Sprintf("ok  \t%s\t%.1fs\t%d tests\n", e.Package, e.Elapsed, t.count(e.Package))
	case e.Action == "fail":
		return strings.Join(output, "")
	}
	return ""
}

// count returns the number of tests of a package that have passed.
func (t *tally) count(pkg string) (n int) {
	for _, r := range t.results {
		if r.Package == pkg && r.Test != "" && r.Outcome == "pass" {
			n++
		}
	}
	return n
}

// reason returns why a test was skipped, or why it failed.
func reason(action string, output []string) string {
	switch action {
	case "skip":
		return skipReason(output)
	case "fail":
		return failure(output)
	}
	return ""
}

// skipReason returns the reason that a skipped test gave.
func skipReason(output []string) string {
	for _, line := range output {
		if at := strings.Index(line, ".go:"); at >= 0 {
			if _, reason, found := strings.Cut(line[at:], ": "); found {
				return strings.TrimSpace(reason)
			}
		}
	}
	return ""
}

// failureLines is how many lines of a failed test a summary has.
const failureLines = 10

// failure returns the first lines of a failed test's output from its first message on, or the last lines if it gave
// none, as after a panic.
func failure(output []string) string {
	var lines []string
	for _, text := range output {
		for line := range strings.Lines(text) {
			line = strings.TrimRight(line, " \t\n")
			if line != "" && !strings.HasPrefix(strings.TrimSpace(line), "=== ") {
				lines = append(lines, line)
			}
		}
	}
	first := slices.IndexFunc(lines, func(line string) bool { return strings.Contains(line, "_test.go:") })
	if first < 0 {
		first = max(0, len(lines)-failureLines)
	}
	return strings.Join(lines[first:min(first+failureLines, len(lines))], "\n")
}

// progress says which tests run, or returns an empty text.
func (t *tally) progress(since time.Duration) string {
	var running []string
	for at := range t.running {
		if !strings.Contains(at.name, "/") {
			running = append(running, at.name)
		}
	}
	if len(running) == 0 {
		return ""
	}
	slices.SortFunc(running, cmp.Compare[string])
	rest := ""
	if named := 4; len(running) > named {
		rest = fmt.Sprintf(" and %d others", len(running)-named)
		running = running[:named]
	}
	return fmt.Sprintf("... %s: %d tests have ended; running: %s%s\n", since.Round(time.Second), len(t.results),
		strings.Join(running, ", "), rest)
}

// passed returns how many of the expected tests passed.
func (t *tally) passed(expected []test) (n int) {
	for _, r := range t.results {
		if r.Outcome == "pass" && slices.Contains(expected, test{r.Package, r.Test}) {
			n++
		}
	}
	return n
}

// missing returns an error that names the expected tests that did not pass. It accepts a test that
// was skipped because the machine lacks something: the summary reports it.
func (t *tally) missing(expected []test) error {
	outcomes := map[test]result{}
	for _, r := range t.results {
		if r.Test != "" {
			outcomes[test{r.Package, r.Test}] = r
		}
	}
	var problems []string
	for _, want := range expected {
		got, ran := outcomes[want]
		inside, skippedInside := t.skippedInside[want]
		switch {
		case !ran:
			problems = append(problems, want.name+" did not run")
		case got.Outcome == "skip" && !strings.HasPrefix(got.Reason, marks.NotRun):
			problems = append(problems, want.name+" was skipped: "+got.Reason)
		case skippedInside:
			problems = append(problems, inside+" was skipped")
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("tests that must run did not:\n  %s", strings.Join(problems, "\n  "))
	}
	return nil
}
