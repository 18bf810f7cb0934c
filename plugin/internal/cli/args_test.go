package cli_test

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

func TestArgs(t *testing.T) {
	tests := map[string]struct {
		accepts cobra.PositionalArgs
		args    []string
		want    string // the error, if any
	}{
		"as many": {cli.ExactArgs(1, "a NAME"), []string{"a"}, ""},
		"too few": {
			cli.ExactArgs(1, "a NAME"), nil, "show takes a NAME, not 0 arguments: see 'show -h' for help and examples",
		},
		"too many": {
			cli.ExactArgs(0, "nothing"), []string{"a"},
			"show takes nothing, not 1 arguments: see 'show -h' for help and examples",
		},
		"none": {cli.AtMostOneArg("a DIR"), nil, ""},
		"one":  {cli.AtMostOneArg("a DIR"), []string{"a"}, ""},
		"more than one": {
			cli.AtMostOneArg("a DIR"), []string{"a", "b"},
			"show takes a DIR or nothing, not 2 arguments: see 'show -h' for help and examples",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			err := test.accepts(&cobra.Command{Use: "show"}, test.args)
			if test.want == "" {
				require.NoError(t, err)
			} else {
				require.EqualError(t, err, test.want)
			}
		})
	}
}
