package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"nstpl.dev/nstpl/test/marks"
)

// resultsVariable names the environment variable with the path of the file to which runTests appends results, as JSON
// lines. Without it, there is no summary.
const resultsVariable = "NSTPL_SUITE_RESULTS"

// progressInterval is how often a run without other output says what it waits for.
const progressInterval = 30 * time.Second

// testRun is a run of tests of the suite.
type testRun struct {
	// name is quick, race, thorough, node, browser, or a version of Kubernetes.
	name string
	// dir is the folder in which go test runs; empty means the current one.
	dir             string
	flags, patterns []string
	out             io.Writer
}

// newTestRun parses arguments: flags of go test and packages, and -C=DIR, the folder of another module.
func newTestRun(name string, args []string, out io.Writer) testRun {
	r := testRun{name: name, out: out}
	for _, arg := range args {
		if dir, found := strings.CutPrefix(arg, "-C="); found {
			r.dir = dir
		} else if strings.HasPrefix(arg, "-") {
			r.flags = append(r.flags, arg)
		} else {
			r.patterns = append(r.patterns, arg)
		}
	}
	return r
}

// runTests runs the tests that belong to a run, and fails if one of them did not run.
func runTests(ctx context.Context, r testRun) error {
	packages, err := listPackages(ctx, r.dir, r.patterns...)
	if err != nil {
		return err
	}
	args, expected, err := selectTests(packages, r.name)
	if err != nil {
		return err
	}
	t := newTally(r.name)
	failed := r.goTest(ctx, t, args)
	if err := errors.Join(failed, record(t.results)); err != nil {
		return err
	}
	if err := t.missing(expected); err != nil {
		return err
	}
	fmt.Fprintf(r.out, "run %s: %d of %d tests passed\n", r.name, t.passed(expected), len(expected))
	return nil
}

// selectTests returns the arguments of go test for a run, and the tests that must run. Packages without a selected test
// are left out, unless the run is quick, in which go test compiles them. The run race has the quick tests of packages
// in which there can be a race. Packages are tested at the same time, the first ones first, so one pattern is for all.
func selectTests(packages []testPackage, run string) (args []string, expected []test, err error) {
	var skipped []test
	for _, p := range packages {
		if run == "race" {
			canRace, err := p.isConcurrent()
			if err != nil {
				return nil, nil, err
			}
			if !canRace {
				continue
			}
		}
		tests, err := scan(p)
		if err != nil {
			return nil, nil, err
		}
		selected, others, err := split(tests, run)
		if err != nil {
			return nil, nil, err
		}
		if len(selected) == 0 && (run != "quick" || len(others) > 0) {
			continue
		}
		args = append(args, p.ImportPath)
		expected, skipped = append(expected, selected...), append(skipped, others...)
	}
	switch {
	case len(expected) == 0:
		return nil, nil, fmt.Errorf("no test belongs to the run %s", run)
	case len(skipped) == 0:
		return args, expected, nil
	case run == "quick" || run == "race": // also with the seeds of fuzz tests
		return append([]string{"-skip=" + pattern(skipped)}, args...), expected, nil
	}
	return append([]string{"-run=" + pattern(expected)}, args...), expected, unequalNames(run, expected, skipped)
}

// unequalNames fails if a test that does not belong to a run has the name of one that does: one pattern is for all
// packages, so it would run, too.
func unequalNames(run string, expected, skipped []test) error {
	for _, other := range skipped {
		i := slices.IndexFunc(expected, func(t test) bool { return t.name == other.name })
		if i >= 0 {
			return fmt.Errorf("the run %s selects tests by name: rename %s, which does not belong to it, or %s, which does",
				run, other, expected[i])
		}
	}
	return nil
}

// split returns the tests of a run, and the others.
func split(tests map[test]marks.Mark, run string) (selected, others []test, err error) {
	for t, mark := range tests {
		belongs, err := mark.Selects(run)
		if err != nil {
			return nil, nil, err
		}
		if belongs {
			selected = append(selected, t)
		} else {
			others = append(others, t)
		}
	}
	byName := func(a, b test) int { return cmp.Compare(a.String(), b.String()) }
	slices.SortFunc(selected, byName)
	slices.SortFunc(others, byName)
	return selected, others, nil
}

// pattern returns the regular expression of the names of tests.
func pattern(tests []test) string {
	var names []string
	for _, t := range tests {
		names = append(names, regexp.QuoteMeta(t.name))
	}
	return "^(" + strings.Join(names, "|") + ")$"
}

// goTest runs go test and prints the output of what fails, a line for each package, and from time to time what runs.
func (r testRun) goTest(ctx context.Context, t *tally, args []string) error {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-json", "-vet=off"}, r.flags, args)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Dir = r.dir
	cmd.Stderr = os.Stderr
	cmd.Env = os.Environ()
	if _, _, isVersion := strings.Cut(r.name, "."); isVersion {
		cmd.Env = append(cmd.Env, "K8S_VERSION="+r.name)
	}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	follow(t, pipe, r.out)
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("go test: %w", err)
	}
	return nil
}

// follow reads the events of go test to their end.
func follow(t *tally, events io.Reader, out io.Writer) {
	lines := make(chan []byte)
	go func() {
		defer close(lines)
		scanner := bufio.NewScanner(events)
		scanner.Buffer(nil, 64<<20) // a line of output may be long
		for scanner.Scan() {
			lines <- slices.Clone(scanner.Bytes())
		}
	}()
	begin, tick := time.Now(), time.NewTicker(progressInterval)
	defer tick.Stop()
	for {
		select {
		case line, more := <-lines:
			if !more {
				return
			}
			var e event
			if err := json.Unmarshal(line, &e); err != nil {
				fmt.Fprintf(out, "%s\n", line)
				continue
			}
			if text := t.add(e); text != "" {
				fmt.Fprint(out, text)
			}
		case <-tick.C:
			fmt.Fprint(out, t.progress(time.Since(begin)))
		}
	}
}

// record appends results to the file for the summary.
func record(results []result) error {
	path := os.Getenv(resultsVariable)
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	encoder := json.NewEncoder(file)
	for _, r := range results {
		if err := encoder.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
