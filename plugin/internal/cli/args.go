package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// UsageError returns an error that says what is wrong with a command line and which help to read.
func UsageError(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w: see '%s -h' for help and examples", err, cmd.CommandPath())
}

// ExactArgs accepts count arguments. The description of them is for the error, such as "the NAME of a namespace".
func ExactArgs(count int, description string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != count {
			return UsageError(cmd,
				fmt.Errorf("%s takes %s, not %d arguments", cmd.CommandPath(), description, len(args)))
		}
		return nil
	}
}

// AtMostOneArg accepts one argument or none.
func AtMostOneArg(description string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 1 {
			return UsageError(cmd,
				fmt.Errorf("%s takes %s or nothing, not %d arguments", cmd.CommandPath(), description, len(args)))
		}
		return nil
	}
}
