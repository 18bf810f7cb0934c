// Package plugin is the kubectl plugin `kubectl nstpl`.
//
// Run is the whole program: it runs a command, prints its error and returns the exit code. The commands are in
// internal, a package for each family; package cli there says what they share.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	// Adds the auth providers that kubeconfigs may name, such as oidc.
	_ "k8s.io/client-go/plugin/pkg/client/auth"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/command"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// completer is the name under which kubectl runs a plugin to complete its command line.
const completer = "kubectl_complete-nstpl"

// Run runs the plugin with a program name and arguments, and returns the exit code.
func Run(ctx context.Context, argv []string, streams genericiooptions.IOStreams) int {
	root := NewCommand(streams)
	root.SetArgs(arguments(argv))
	err := root.ExecuteContext(ctx)
	if message := Message(err); message != "" {
		fmt.Fprintln(streams.ErrOut, message)
	}
	return ExitCode(err)
}

// NewCommand returns the command `kubectl nstpl`.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return command.New(streams)
}

// arguments returns the arguments for cobra. Kubectl's protocol for completion differs from cobra's only in how the
// program is called.
func arguments(argv []string) []string {
	if strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == completer {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}

// Message returns the error message of a command, or "" if there is none to print.
func Message(err error) string {
	if exit, ok := errors.AsType[*cli.Exit](err); ok {
		err = exit.Err
	}
	if err == nil {
		return ""
	}
	return output.Error(err)
}

// ExitCode returns the exit code for the error of a command: 0 for nil, 1 unless the error is a cli.Exit.
func ExitCode(err error) int {
	if exit, ok := errors.AsType[*cli.Exit](err); ok {
		return exit.Code
	}
	if err != nil {
		return 1
	}
	return 0
}
