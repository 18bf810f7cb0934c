package plugin_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin"
	"nstpl.dev/nstpl/plugin/internal/cli"
)

func TestExitCodeAndMessage(t *testing.T) {
	tests := map[string]struct {
		err     error
		code    int
		message string
	}{
		"no error":    {nil, 0, ""},
		"an error":    {errors.New("no"), 1, "error: no"},
		"differences": {&cli.Exit{Code: 1}, 1, ""},
		"a failure":   {&cli.Exit{Code: 2, Err: errors.New("no")}, 2, "error: no"},
		"wrapped":     {fmt.Errorf("x: %w", &cli.Exit{Code: 2, Err: errors.New("no")}), 2, "error: no"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, test.code, plugin.ExitCode(test.err))
			require.Equal(t, test.message, plugin.Message(test.err))
		})
	}
}

func TestRunCompletesForKubectl(t *testing.T) {
	for _, program := range []string{
		"kubectl_complete-nstpl", "/usr/bin/kubectl_complete-nstpl", "kubectl_complete-nstpl.exe",
	} {
		streams, _, out, _ := genericiooptions.NewTestIOStreams()
		require.Zero(t, plugin.Run(t.Context(), []string{program, "pre"}, streams))
		require.True(t, strings.HasPrefix(out.String(), "preview\t"), out.String())
		require.True(t, strings.HasSuffix(out.String(), "\n:4\n"), out.String())
	}
	streams, _, out, errOut := genericiooptions.NewTestIOStreams()
	require.Equal(t, 1, plugin.Run(t.Context(), []string{"kubectl-nstpl", "pre"}, streams))
	require.Empty(t, out.String())
	require.Contains(t, errOut.String(), "Did you mean this?\n  preview\n")
}

func TestEveryCommandHasHelpWithExample(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	root := plugin.NewCommand(streams)
	for _, cmd := range root.Commands() {
		require.Contains(t, cmd.Example, "kubectl nstpl "+cmd.Name(), cmd.Name())
		require.NotEmpty(t, cmd.Short)
		require.LessOrEqual(t, len(cmd.Short), 70, cmd.Short)
		var help bytes.Buffer
		cmd.SetOut(&help)
		require.NoError(t, cmd.Help())
		require.Contains(t, help.String(), "Usage:\n  kubectl nstpl "+cmd.Name())
	}
}

// Every example is a valid command line: its command and flags exist, and the number of arguments is allowed.
func TestExamplesAreValidCommandLines(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	var check func(*cobra.Command)
	check = func(cmd *cobra.Command) {
		for line := range strings.Lines(cmd.Example) {
			commandLine, ok := strings.CutPrefix(strings.TrimSpace(line), "kubectl nstpl ")
			if !ok {
				continue
			}
			commandLine, _, _ = strings.Cut(commandLine, " | ")
			commandLine, _, _ = strings.Cut(commandLine, " && ")
			example, args, err := plugin.NewCommand(streams).Find(strings.Fields(commandLine))
			require.NoError(t, err, line)
			require.NoError(t, example.ParseFlags(args), line)
			require.NoError(t, example.ValidateArgs(example.Flags().Args()), line)
		}
		for _, subcommand := range cmd.Commands() {
			check(subcommand)
		}
	}
	check(plugin.NewCommand(streams))
}
