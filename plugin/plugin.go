// Package plugin is the kubectl plugin `kubectl nstpl`.
//
// Run is the whole program: it runs a command, prints its error and returns the exit code. The commands are in the
// directory internal, with one package for each family of commands. Package cli documents the rules for all of them.
package plugin

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	// Adds the auth providers that kubeconfigs may name, such as oidc.
	_ "k8s.io/client-go/plugin/pkg/client/auth"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/command"
	// Keeps kubectl from loading its translations.
	_ "nstpl.dev/nstpl/plugin/internal/english"
	"nstpl.dev/nstpl/plugin/internal/output"
)

const (
	// exitInterrupted is the exit code of a command that the user interrupted, like that of shells for SIGINT.
	exitInterrupted = 130
	// grace is how long an interrupted command may take to end. A read of standard input cannot be interrupted.
	grace = 2 * time.Second
)

// Run runs the plugin and returns its exit code. The first element of argv is the name of the program. The end of ctx
// interrupts the command.
func Run(ctx context.Context, argv []string, streams genericiooptions.IOStreams) int {
	session := cli.NewSession(streams)
	root := command.New(session)
	root.SetArgs(arguments(argv))
	err := execute(ctx, root)
	message := Message(err)
	switch {
	case message == "":
	case ctx.Err() != nil:
		output.Sentences(streams.ErrOut, session.Commands(output.Interrupted(err)))
		return exitInterrupted
	default:
		output.Sentences(streams.ErrOut, session.Commands(message))
	}
	return ExitCode(err)
}

// execute runs a command. It returns soon after ctx ends, even if the command does not.
func execute(ctx context.Context, root *cobra.Command) error {
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return err
	case <-time.After(grace):
		return ctx.Err()
	}
}

// NewCommand returns the command `kubectl nstpl`.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return command.New(cli.NewSession(streams))
}

// arguments returns the arguments for cobra. For completion, kubectl runs the program by another name, where cobra
// expects another first argument.
func arguments(argv []string) []string {
	if strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == command.CompletionProgram {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}

// Message returns the error message to print for the error of a command, or "" if there is none.
func Message(err error) string {
	if exit, ok := errors.AsType[*cli.Exit](err); ok {
		err = exit.Err
	}
	if err == nil {
		return ""
	}
	return output.Error(err)
}

// ExitCode returns the exit code for the error of a command: 0 for nil, the code of a cli.Exit, and 1 for other errors.
func ExitCode(err error) int {
	if exit, ok := errors.AsType[*cli.Exit](err); ok {
		return exit.Code
	}
	if err != nil {
		return 1
	}
	return 0
}
