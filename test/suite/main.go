// Command suite runs the project's tests and checks.
//
//	suite stages TARGET[+TARGET]...  runs make for one target after the other, and for those with a plus sign between
//	                               them at the same time; prints a summary
//	suite test RUN [FLAG|PACKAGE]  runs go test for the tests of a run: quick, race, thorough, node, browser, or a
//	                               version of Kubernetes; a test of the run that is skipped, or does not run, is a
//	                               failure; race has the quick tests of packages in which there can be a race
//	suite marks [-update]          checks that marks.txt lists the marked tests, and that make test and make test-all
//	                               run each test in the runs that it belongs to; or writes marks.txt
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	switch {
	case len(args) > 1 && args[0] == "stages":
		return runStages(ctx, args[1:], os.Stdout)
	case len(args) > 1 && args[0] == "test":
		return runTests(ctx, newTestRun(args[1], args[2:], os.Stdout))
	case slices.Equal(args, []string{"marks"}):
		return checkMarks(ctx)
	case slices.Equal(args, []string{"marks", "-update"}):
		return updateMarks(ctx)
	}
	return errors.New("usage: suite stages TARGET... | suite test RUN [FLAG|PACKAGE]... | suite marks [-update]")
}
