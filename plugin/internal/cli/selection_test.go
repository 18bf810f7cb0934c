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
		"nothing":            {nil, true, ""},
		"names":              {[]string{"a", "b"}, false, ""},
		"all":                {[]string{"-A"}, false, ""},
		"a selector":         {[]string{"-l", "tier in (a, b)"}, false, ""},
		"names and all":      {[]string{"a", "-A"}, false, "not both"},
		"names and selector": {[]string{"a", "-l", "x=y"}, false, "not both"},
		"a broken selector":  {[]string{"-l", "a=b=c"}, false, "--selector: "},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			cmd := &cobra.Command{Use: "show"}
			var selection cli.Selection
			selection.AddFlags(cmd)
			require.NoError(t, cmd.ParseFlags(test.args))
			selection.Names = cmd.Flags().Args()
			require.Equal(t, test.isEmpty, selection.IsEmpty())
			err := selection.Check(cmd)
			if test.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, test.err)
			}
		})
	}
}
