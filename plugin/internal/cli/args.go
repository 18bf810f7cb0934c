package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// UsageError returns err, the reason why a command line is invalid, with a hint to the help of the command.
func UsageError(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w: see '%s -h' for help and examples", err, cmd.CommandPath())
}

// beforeRun adds a check of flags and arguments to a command, after those added earlier. Its error gets the hint to the
// help, and the exit code, that the command's FlagErrorFunc gives it.
func beforeRun(cmd *cobra.Command, check func(args []string) error) {
	earlier := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		if earlier != nil {
			if err := earlier(cmd, args); err != nil {
				return err
			}
		}
		if err := check(args); err != nil {
			return cmd.FlagErrorFunc()(cmd, err)
		}
		return nil
	}
}

// Subcommands adds subcommands to a command that does nothing itself. Without arguments, the command prints its help.
func Subcommands(cmd *cobra.Command, subcommands ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(subcommands...)
	cmd.SuggestionsMinimumDistance = 2
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return cmd.Help()
		}
		problem := fmt.Sprintf("unknown command %q for %q", args[0], cmd.CommandPath())
		if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
			problem += fmt.Sprintf(", did you mean %s?", strings.Join(similar, " or "))
		}
		return UsageError(cmd, errors.New(problem))
	}
	return cmd
}

// NoArgs accepts no arguments.
func NoArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return UsageError(cmd, fmt.Errorf("unexpected arguments: %q", args))
	}
	return nil
}

// OneArg accepts exactly one argument. Name is its name in the usage line, such as NAME.
func OneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 {
			return UsageError(cmd, fmt.Errorf("exactly one %s is required, got %d", name, len(args)))
		}
		return nil
	}
}

// AtMostOneArg accepts one argument or none. Name is its name in the usage line, such as DIR.
func AtMostOneArg(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return UsageError(cmd, fmt.Errorf("at most one %s is allowed, got %d", name, len(args)))
		}
		return nil
	}
}
