package command

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/kubectl/pkg/util/templates"
	"k8s.io/kubectl/pkg/util/term"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// setHelp gives a command and its subcommands the help that kubectl's commands have: examples and the command's own
// options first, and the options of all commands in a command of their own. On a terminal, lines are wrapped to its
// width.
func setHelp(root *cobra.Command) {
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		out := term.NewResponsiveWriter(cmd.OutOrStdout())
		// templates.LongDesc starts each paragraph but the first with a space.
		fmt.Fprintln(out, strings.ReplaceAll(strings.TrimSpace(cmp.Or(cmd.Long, cmd.Short)), "\n\n ", "\n\n"))
		fmt.Fprintln(out)
		writeUsage(out, cmd)
	})
	nameFlags(root)
	root.SetUsageFunc(func(cmd *cobra.Command) error {
		writeUsage(term.NewResponsiveWriter(cmd.OutOrStderr()), cmd)
		return nil
	})
}

// nameFlags has the usage lines of a command and its subcommands name the flags themselves, as far as they do.
func nameFlags(cmd *cobra.Command) {
	cmd.DisableFlagsInUseLine = cmd.HasParent()
	for _, sub := range cmd.Commands() {
		nameFlags(sub)
	}
}

func writeUsage(out io.Writer, cmd *cobra.Command) {
	if cmd.HasExample() {
		fmt.Fprintf(out, "Examples:\n%s\n\n", strings.TrimRight(cmd.Example, " \n"))
	}
	writeSubcommands(out, cmd)
	if flags := ownFlags(cmd); len(flags) > 0 {
		fmt.Fprintf(out, "Options:\n%s\n\n", flagUsages(flags))
	}
	if cmd.HasAvailableSubCommands() {
		fmt.Fprintf(out, "Usage:\n  %s COMMAND [options]\n\n", cmd.CommandPath())
		fmt.Fprintf(out, "Use \"%s COMMAND --help\" for more information about a command.\n", cmd.CommandPath())
	} else {
		fmt.Fprintf(out, "Usage:\n  %s\n\n", cmd.UseLine())
	}
	fmt.Fprintf(out, "Use \"%s options\" for a list of the options of all commands.\n", cmd.Root().CommandPath())
}

func writeSubcommands(out io.Writer, cmd *cobra.Command) {
	for _, group := range append(cmd.Groups(), &cobra.Group{Title: "Available Commands:"}) {
		var lines []string
		for _, sub := range cmd.Commands() {
			if sub.GroupID == group.ID && sub.IsAvailableCommand() && sub.Name() != "help" {
				lines = append(lines, fmt.Sprintf("  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short))
			}
		}
		if len(lines) > 0 {
			fmt.Fprintf(out, "%s\n%s\n", group.Title, strings.Join(lines, ""))
		}
	}
}

// ownFlags returns the flags that only a command has. Those in its usage line come first, in that order.
func ownFlags(cmd *cobra.Command) []*pflag.Flag {
	var own []*pflag.Flag
	cmd.LocalNonPersistentFlags().VisitAll(func(flag *pflag.Flag) {
		if !flag.Hidden && flag.Name != "help" {
			own = append(own, flag)
		}
	})
	position := func(flag *pflag.Flag) int {
		for _, text := range []string{"--" + flag.Name, "-" + flag.Shorthand} {
			for _, end := range []string{" ", "]", "="} {
				if at := strings.Index(cmd.Use, text+end); at >= 0 && len(text) > 1 {
					return at
				}
			}
		}
		return len(cmd.Use)
	}
	slices.SortStableFunc(own, func(a, b *pflag.Flag) int { return position(a) - position(b) })
	return own
}

func flagUsages(flags []*pflag.Flag) string {
	width, err := term.GetWordWrapperLimit()
	if err != nil {
		width = 0 // not a terminal
	}
	text := &bytes.Buffer{}
	printer := templates.NewHelpFlagPrinter(text, width)
	for _, flag := range flags {
		printer.PrintHelpFlag(flag)
	}
	return strings.TrimRight(text.String(), "\n")
}

func newOptions(s cli.Session) *cobra.Command {
	return &cobra.Command{
		Use:   "options",
		Short: "List the options of all commands",
		Example: templates.Examples(`
			# List the options of all commands
			kubectl nstpl options`),
		Args: cli.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			var flags []*pflag.Flag
			cmd.Root().PersistentFlags().VisitAll(func(flag *pflag.Flag) { flags = append(flags, flag) })
			fmt.Fprintf(term.NewResponsiveWriter(s.Out), "Every command accepts these options:\n\n%s\n", flagUsages(flags))
		},
	}
}
