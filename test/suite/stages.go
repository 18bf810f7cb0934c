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
	"path/filepath"
	"slices"
	"strings"
	"time"

	"nstpl.dev/nstpl/test/marks"
)

// stage is how a target of make ended. A target after a failed one does not run.
type stage struct {
	target string
	state  string
	took   time.Duration
}

// runStages runs make for one target after the other until one fails, and prints a summary.
func runStages(ctx context.Context, targets []string, out io.Writer) error {
	dir, err := os.MkdirTemp("", "nstpl-suite-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "results")
	var stages []stage
	failed := ""
	for _, target := range targets {
		if failed != "" {
			stages = append(stages, stage{target: target, state: "not run"})
			continue
		}
		begin := time.Now()
		s := stage{target: target, state: "passed"}
		if err := runMake(ctx, target, path, out); err != nil {
			s.state, failed = "FAILED", target
		}
		s.took = time.Since(begin)
		stages = append(stages, s)
	}
	results, err := readResults(path)
	if err != nil {
		return err
	}
	summarize(out, stages, results)
	if failed != "" {
		return fmt.Errorf("make %s repeats what failed", failed)
	}
	return nil
}

func runMake(ctx context.Context, target, results string, out io.Writer) error {
	fmt.Fprintf(out, "\n=== make %s\n", target)
	cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("MAKE"), "make"), "--no-print-directory", target)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.Env = append(os.Environ(), resultsVariable+"="+results)
	return cmd.Run()
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
		fmt.Fprintf(out, "  %-12s %-8s %5.0f s\n", s.target, s.state, s.took.Seconds())
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
	if len(notRun) > 0 {
		fmt.Fprintf(out, "\n!!! %d TESTS WERE NOT RUN:\n", len(notRun))
		for _, r := range notRun {
			fmt.Fprintf(out, "!!!   %s: %s\n", r.Test, strings.TrimPrefix(r.Reason, marks.NotRun))
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", outcomes["pass"], outcomes["fail"], outcomes["skip"])
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
		name := strings.TrimPrefix(r.Package, "nstpl.dev/nstpl/")
		if r.Test != "" {
			name += " " + r.Test
		}
		fmt.Fprintf(out, "  %6.1f s  %s (%s)\n", r.Seconds, name, r.Run)
	}
}
