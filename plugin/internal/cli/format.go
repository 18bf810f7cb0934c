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
	FormatName  = "name"
)

// FormatFlag is the flag --output of a command with its own output formats. Commands with kubectl's formats use
// genericclioptions.PrintFlags instead.
type FormatFlag struct {
	// Format is the value, or empty for the command's default output.
	Format string

	defaultFormat string
	allowed       []string
}

// AddTo adds the flag and its check to a command. The default format may be empty. The help of the flag is the
// description followed by the allowed formats.
func (f *FormatFlag) AddTo(cmd *cobra.Command, defaultFormat, description string, allowed ...string) {
	f.defaultFormat, f.allowed = defaultFormat, allowed
	cmd.Flags().StringVarP(&f.Format, "output", "o", defaultFormat,
		fmt.Sprintf("%s. One of: (%s).", description, strings.Join(allowed, ", ")))
	CompleteValues(cmd, "output", allowed...)
	beforeRun(cmd, f.check)
}

// check returns an error if the value of the flag is neither the default nor an allowed format.
func (f *FormatFlag) check([]string) error {
	if f.Format == f.defaultFormat || slices.Contains(f.allowed, f.Format) {
		return nil
	}
	last := len(f.allowed) - 1
	return fmt.Errorf("invalid --output %q: must be %s or %s", f.Format, strings.Join(f.allowed[:last], ", "),
		f.allowed[last])
}
