// Command reference writes the reference of the plugin's commands to standard output, as Markdown.
package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin"
)

func main() {
	root := plugin.NewCommand(genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr})
	root.DisableAutoGenTag = true
	root.PersistentFlags().Lookup("cache-dir").DefValue = "$HOME/.kube/cache" // independent of the user
	fmt.Fprintln(os.Stdout,
		"# Commands\n\nThis page lists all commands of `kubectl nstpl` with their help. `make generate` generates it.")
	if err := write(os.Stdout, root); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

// write writes the help of a command and of its subcommands.
func write(to io.Writer, command *cobra.Command) error {
	if !command.IsAvailableCommand() && command.HasParent() {
		return nil
	}
	fmt.Fprintln(to)
	if err := doc.GenMarkdownCustom(command, to, anchor); err != nil {
		return err
	}
	// Only the help of the root command lists the flags that all commands inherit.
	command.PersistentFlags().VisitAll(func(flag *pflag.Flag) { flag.Hidden = true })
	for _, subcommand := range command.Commands() {
		if err := write(to, subcommand); err != nil {
			return err
		}
	}
	return nil
}

// anchor returns the link to a command on this page. Cobra passes the name of the file that it would write for the
// command.
func anchor(file string) string {
	return "#" + strings.ReplaceAll(strings.TrimSuffix(file, ".md"), "_", "-")
}
