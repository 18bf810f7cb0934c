// Package plugin is the kubectl plugin `kubectl nstpl`.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	// Credentials of cloud providers and of programs that kubeconfigs name.
	_ "k8s.io/client-go/plugin/pkg/client/auth"

	"nstpl.dev/nstpl/plugin/internal/cli"
	"nstpl.dev/nstpl/plugin/internal/command"
	"nstpl.dev/nstpl/plugin/internal/output"
)

// completer is the name by which kubectl calls a plugin to complete its command line.
const completer = "kubectl_complete-nstpl"

// Run runs the plugin, called as argv, and returns the exit code.
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

// arguments turns a call in kubectl's completion protocol into one in cobra's, which answers alike.
func arguments(argv []string) []string {
	if strings.TrimSuffix(filepath.Base(argv[0]), ".exe") == completer {
		return append([]string{cobra.ShellCompRequestCmd}, argv[1:]...)
	}
	return argv[1:]
}

// Message says an error of a command for a person; it is empty when there is nothing left to say.
func Message(err error) string {
	if exit, ok := errors.AsType[*cli.Exit](err); ok {
		err = exit.Err
	}
	if err == nil {
		return ""
	}
	return output.Error(err)
}

// ExitCode returns the exit code for an error of a command: 0 for none, and 1 where the command chose no other.
func ExitCode(err error) int {
	if exit, ok := errors.AsType[*cli.Exit](err); ok {
		return exit.Code
	}
	if err != nil {
		return 1
	}
	return 0
}
