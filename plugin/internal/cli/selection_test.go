package cli_test

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

func TestSelection(t *testing.T) {
	tests := map[string]struct {
		args    []string
		isEmpty bool
		err     string
	}{
		"no arguments":        {nil, true, ""},
		"names":               {[]string{"a", "b"}, false, ""},
		"all namespaces":      {[]string{"-A"}, false, ""},
		"a selector":          {[]string{"-l", "tier in (a, b)"}, false, ""},
		"names and -A":        {[]string{"a", "-A"}, false, "cannot be combined"},
		"names and -l":        {[]string{"a", "-l", "x=y"}, false, "cannot be combined"},
		"an invalid selector": {[]string{"-l", "a=b=c"}, false, "--selector: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := &cobra.Command{Use: "show"}
			var selection cli.Selection
			selection.AddFlags(cmd)
			require.NoError(t, cmd.ParseFlags(test.args))
			err := cmd.PreRunE(cmd, cmd.Flags().Args())
			require.Equal(t, test.isEmpty, selection.IsEmpty())
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}
		})
	}
}
