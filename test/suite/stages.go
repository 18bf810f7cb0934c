package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"nstpl.dev/nstpl/test/marks"
)

// stage is how a target of make ended. A target after a failed one does not run.
type stage struct {
	target string
	state  string
	took   time.Duration
	// cpu is the CPU time of the target, without that of daemons that outlive it.
	cpu time.Duration
}

// runStages runs make for one target after the other until one fails, and prints a summary. Targets that are joined by
// plus signs run at the same time: their tests wait more than they compute.
func runStages(ctx context.Context, targets []string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "nstpl-suite-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "results")
	var stages []stage
	var failed []string
	for _, together := range targets {
		names := strings.Split(together, "+")
		if len(failed) > 0 {
			for _, name := range names {
				stages = append(stages, stage{target: name, state: "not run"})
			}
			continue
		}
		ended := runTogether(ctx, names, path, out)
		for _, s := range ended {
			if s.state == "FAILED" {
				failed = append(failed, s.target)
			}
		}
		stages = append(stages, ended...)
	}
	results, err := readResults(path)
	if err != nil {
		return err
	}
	summarize(out, stages, results)
	if len(failed) > 0 {
		return fmt.Errorf("make %s repeats what failed", strings.Join(failed, " "))
	}
	return nil
}

// runTogether runs make for several targets at the same time. A line of output then begins with its target.
func runTogether(ctx context.Context, targets []string, results string, out io.Writer) []stage {
	fmt.Fprintf(out, "\n=== make %s\n", strings.Join(targets, " "))
	stages := make([]stage, len(targets))
	shared := &sharedWriter{out: out}
	var group sync.WaitGroup
	for i, target := range targets {
		output := out
		if len(targets) > 1 {
			lines := &lineWriter{prefix: target + ": ", out: shared}
			defer lines.Flush()
			output = lines
		}
		group.Go(func() { stages[i] = runMake(ctx, target, results, output) })
	}
	group.Wait()
	return stages
}

// runMake runs make for a target.
func runMake(ctx context.Context, target, results string, out io.Writer) stage {
	cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("MAKE"), "make"), "--no-print-directory", target)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Env = append(os.Environ(), resultsVariable+"="+results)
	begin := time.Now()
	s := stage{target: target, state: "passed"}
	if err := cmd.Run(); err != nil {
		s.state = "FAILED"
		fmt.Fprintf(out, "make %s: %v\n", target, err)
	}
	s.took = time.Since(begin)
	if used := cmd.ProcessState; used != nil {
		s.cpu = used.UserTime() + used.SystemTime()
	}
	return s
}

// sharedWriter lets several writers write to one.
type sharedWriter struct {
	mu  sync.Mutex
	out io.Writer
}

func (w *sharedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Write(p)
}

// lineWriter writes whole lines, each after a prefix.
type lineWriter struct {
	prefix string
	out    io.Writer
	rest   []byte
}

func (w *lineWriter) Write(p []byte) (int, error) {
	w.rest = append(w.rest, p...)
	end := bytes.LastIndexByte(w.rest, '\n') + 1
	var text []byte
	for line := range bytes.Lines(w.rest[:end]) {
		text = append(append(text, w.prefix...), line...)
	}
	w.rest = bytes.Clone(w.rest[end:])
	_, err := w.out.Write(text)
	return len(p), err
}

// Flush writes what is left after the last line.
func (w *lineWriter) Flush() {
	if len(w.rest) > 0 {
		_, _ = w.Write([]byte("\n"))
	}
}

func readResults(path string) ([]result, error) {
	file, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var results []result
	for scanner := bufio.NewScanner(file); scanner.Scan(); {
		var r result
		if err := json.Unmarshal(scanner.Bytes(), &r); err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

// slowest is how many tests and packages a summary names.
const slowest = 20

// summarize prints where the time went, what did not run, and the numbers of tests, in a last line that programs read.
func summarize(out io.Writer, stages []stage, results []result) {
	printSlowest(out, "packages", results, func(r result) bool { return r.Test == "" })
	printSlowest(out, "tests", results, func(r result) bool { return r.Test != "" })
	fmt.Fprintln(out, "\n=== summary")
	for _, s := range stages {
		fmt.Fprintf(out, "  %-12s %-8s %5.0f s  %5.0f s of CPU time\n", s.target, s.state, s.took.Seconds(), s.cpu.Seconds())
	}
	outcomes := map[string]int{}
	var notRun []result
	for _, r := range results {
		if r.Test == "" {
			continue
		}
		outcomes[r.Outcome]++
		if r.Outcome == "skip" {
			notRun = append(notRun, r)
		}
	}
	printFailures(out, results)
	if len(notRun) > 0 {
		fmt.Fprintf(out, "\n!!! %d TESTS WERE NOT RUN:\n", len(notRun))
		for _, r := range notRun {
			fmt.Fprintf(out, "!!!   %s: %s\n", r.Test, strings.TrimPrefix(r.Reason, marks.NotRun))
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", outcomes["pass"], outcomes["fail"], outcomes["skip"])
}

// printFailures prints which tests failed and why, and so for packages that failed without a failed test.
func printFailures(out io.Writer, results []result) {
	hasFailedTest := map[string]bool{}
	for _, r := range results {
		if r.Test != "" && r.Outcome == "fail" {
			hasFailedTest[r.Run+" "+r.Package] = true
		}
	}
	for _, r := range results {
		if r.Outcome == "fail" && (r.Test != "" || !hasFailedTest[r.Run+" "+r.Package]) {
			fmt.Fprintf(out, "\n=== failed: %s (%s)\n%s\n", r.name(), r.Run, r.Reason)
		}
	}
}

func printSlowest(out io.Writer, what string, results []result, shown func(result) bool) {
	var some []result
	for _, r := range results {
		if shown(r) && r.Seconds >= 0.1 {
			some = append(some, r)
		}
	}
	if len(some) == 0 {
		return
	}
	slices.SortStableFunc(some, func(a, b result) int { return cmp.Compare(b.Seconds, a.Seconds) })
	fmt.Fprintf(out, "\n=== the slowest %s\n", what)
	for _, r := range some[:min(slowest, len(some))] {
		fmt.Fprintf(out, "  %6.1f s  %s (%s)\n", r.Seconds, r.name(), r.Run)
	}
}
