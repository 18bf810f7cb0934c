package cli_test

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

func TestPositionalArgs(t *testing.T) {
	tests := map[string]struct {
		check cobra.PositionalArgs
		args  []string
		want  string // the error, if any
	}{
		"NoArgs, none given": {cli.NoArgs, nil, ""},
		"NoArgs, one given": {
			cli.NoArgs, []string{"a"}, `unexpected arguments: ["a"]: see 'show -h' for help and examples`,
		},
		"OneArg, one given": {cli.OneArg("NAME"), []string{"a"}, ""},
		"OneArg, none given": {
			cli.OneArg("NAME"), nil, "exactly one NAME is required, got 0: see 'show -h' for help and examples",
		},
		"AtMostOneArg, none given": {cli.AtMostOneArg("DIR"), nil, ""},
		"AtMostOneArg, one given":  {cli.AtMostOneArg("DIR"), []string{"a"}, ""},
		"AtMostOneArg, two given": {
			cli.AtMostOneArg("DIR"), []string{"a", "b"},
			"at most one DIR is allowed, got 2: see 'show -h' for help and examples",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.check(&cobra.Command{Use: "show"}, test.args)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
}
