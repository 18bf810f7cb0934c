package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Values of --output that several commands accept.
const (
	FormatTable = "table"
	FormatWide  = "wide"
	FormatJSON  = "json"
	FormatYAML  = "yaml"
)

// FormatFlag is the flag --output of a command that has few formats of its own. Other commands have kubectl's formats:
// they use genericclioptions.PrintFlags.
type FormatFlag struct {
	// Format is the value, or empty for the command's usual output.
	Format string

	usual    string
	accepted []string
}

// AddTo adds the flag to a command. Usual is the default, and may be empty. The description is the help before the list
// of what the flag accepts.
func (f *FormatFlag) AddTo(cmd *cobra.Command, usual, description string, accepted ...string) {
	f.usual, f.accepted = usual, accepted
	cmd.Flags().StringVarP(&f.Format, "output", "o", usual,
		fmt.Sprintf("%s. One of: (%s).", description, strings.Join(accepted, ", ")))
	CompleteValues(cmd, "output", accepted...)
}

// Check returns a UsageError if the flag was given a value that it does not accept.
func (f *FormatFlag) Check(cmd *cobra.Command) error {
	if f.Format == f.usual || slices.Contains(f.accepted, f.Format) {
		return nil
	}
	last := len(f.accepted) - 1
	return UsageError(cmd,
		fmt.Errorf("--output is %q: it can be %s or %s", f.Format, strings.Join(f.accepted[:last], ", "),
			f.accepted[last]))
}
