package cli_test

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

func TestFormatFlag(t *testing.T) {
	tests := map[string]struct {
		usual string
		args  []string
		want  string // the error, if any
	}{
		"not given":          {"", nil, ""},
		"accepted":           {"", []string{"-o", "wide"}, ""},
		"the default, given": {"yaml", []string{"-o", "yaml"}, ""},
		"unknown": {
			"", []string{"-o", "xml"},
			`--output is "xml": it can be wide, json or yaml: see 'show -h' for help and examples`,
		},
		"empty where none is it": {
			"yaml", []string{"-o", ""},
			`--output is "": it can be wide, json or yaml: see 'show -h' for help and examples`,
		},
		"empty where that is one": {"", []string{"-o", ""}, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := &cobra.Command{Use: "show"}
			var flag cli.FormatFlag
			flag.AddTo(cmd, test.usual, "Output format", cli.FormatWide, cli.FormatJSON, cli.FormatYAML)
			require.Equal(t, "Output format. One of: (wide, json, yaml).", cmd.Flag("output").Usage)
			require.NoError(t, cmd.ParseFlags(test.args))
			err := flag.Check(cmd)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
}
