package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"nstpl.dev/nstpl/test/marks"
)

// modules returns the folders of the modules with tests: the current one, whose folder is empty, and those below test.
func modules() ([]string, error) {
	files, err := filepath.Glob("test/*/go.mod")
	dirs := []string{""}
	for _, file := range files {
		dirs = append(dirs, filepath.Dir(file))
	}
	return dirs, err
}

// checkTargets returns an error that names the tests which no target of make test and make test-all runs in a run that
// they belong to. Without it, a test in a package that no target names would never run.
func checkTargets(ctx context.Context, all map[test]marks.Mark) error {
	runs, err := runsOfMake(ctx)
	if err != nil {
		return err
	}
	ran := map[string]map[test]bool{"quick": {}, "thorough": {}, "node": {}, "browser": {}}
	for _, r := range runs {
		if r.name == "race" { // has only tests that the run quick has, too
			continue
		}
		packages, err := listPackages(ctx, r.dir, r.patterns...)
		if err != nil {
			return err
		}
		_, expected, err := selectTests(packages, r.name)
		if err != nil {
			return fmt.Errorf("%s: %w", strings.Join(r.patterns, " "), err)
		}
		if ran[r.name] == nil {
			ran[r.name] = map[test]bool{}
		}
		for _, t := range expected {
			ran[r.name][t] = true
		}
	}
	return missedBy(ran, all)
}

// missedBy returns an error that names the tests that a run should have and does not have.
func missedBy(ran map[string]map[test]bool, all map[test]marks.Mark) error {
	var problems []error
	for _, run := range slices.Sorted(maps.Keys(ran)) {
		selected, _, err := split(all, run)
		if err != nil {
			return err
		}
		for _, t := range selected {
			if !ran[run][t] {
				problems = append(problems, fmt.Errorf("%s belongs to the run %s, but no target of make test and make "+
					"test-all runs it there: add its package to a target in the Makefile", t, run))
			}
		}
	}
	return errors.Join(problems...)
}

// runsOfMake returns the runs of tests that make test and make test-all consist of.
func runsOfMake(ctx context.Context) ([]testRun, error) {
	stages, err := callsOfMake(ctx, "stages", "test", "test-all")
	if err != nil {
		return nil, err
	}
	var targets []string
	for _, together := range slices.Concat(stages...) {
		targets = append(targets, strings.Split(together, "+")...)
	}
	calls, err := callsOfMake(ctx, "test", targets...)
	if err != nil {
		return nil, err
	}
	var runs []testRun
	for _, args := range calls {
		runs = append(runs, newTestRun(args[0], args[1:], io.Discard))
	}
	return runs, nil
}

// callsOfMake returns the arguments of each call of a command of this program, such as stages, in targets of make.
func callsOfMake(ctx context.Context, command string, targets ...string) ([][]string, error) {
	args := append([]string{"--dry-run", "--no-print-directory"}, targets...)
	dryRun := exec.CommandContext(ctx, cmp.Or(os.Getenv("MAKE"), "make"), args...)
	dryRun.Stderr = os.Stderr
	out, err := dryRun.Output()
	if err != nil {
		return nil, fmt.Errorf("read the commands of make %s: %w", strings.Join(targets, " "), err)
	}
	var calls [][]string
	for line := range strings.Lines(strings.ReplaceAll(string(out), "\\\n", "")) {
		_, args, found := strings.Cut(line, "/suite "+command+" ")
		if !found {
			continue
		}
		words, err := exec.CommandContext(ctx, "sh", "-c", "echo "+args).Output() // go list may be in them
		if err != nil {
			return nil, fmt.Errorf("read the arguments of %s: %w", strings.TrimSpace(line), err)
		}
		calls = append(calls, strings.Fields(string(words)))
	}
	if len(calls) == 0 {
		return nil, fmt.Errorf("make %s does not run suite %s", strings.Join(targets, " "), command)
	}
	return calls, nil
}
