package cli_test

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

func TestFormatFlag(t *testing.T) {
	tests := map[string]struct {
		defaultFormat string
		args          []string
		want          string // the error, if any
	}{
		"no flag":           {"", nil, ""},
		"an allowed format": {"", []string{"-o", "wide"}, ""},
		"the default":       {"yaml", []string{"-o", "yaml"}, ""},
		"an unknown format": {
			"", []string{"-o", "xml"},
			`invalid --output "xml": must be wide, json or yaml: see 'show -h' for help and examples`,
		},
		"empty, but the default is not": {
			"yaml", []string{"-o", ""},
			`invalid --output "": must be wide, json or yaml: see 'show -h' for help and examples`,
		},
		"empty, as the default is": {"", []string{"-o", ""}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := &cobra.Command{Use: "show"}
			cmd.SetFlagErrorFunc(cli.UsageError)
			var flag cli.FormatFlag
			flag.AddTo(cmd, test.defaultFormat, "Output format", cli.FormatWide, cli.FormatJSON, cli.FormatYAML)
			require.Equal(t, "Output format. One of: (wide, json, yaml).", cmd.Flag("output").Usage)
			require.NoError(t, cmd.ParseFlags(test.args))
			err := cmd.PreRunE(cmd, nil)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
}
