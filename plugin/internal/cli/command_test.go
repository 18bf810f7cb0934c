package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

func TestCommandIn(t *testing.T) {
	require.Equal(t, "kubectl nstpl sync confirm corp 1a2b3c4", cli.CommandIn("", "kubectl nstpl sync", "confirm", "corp", "1a2b3c4"))
	require.Equal(t, "kubectl nstpl check --context arn:aws:eks:eu-west-1:1234:cluster/a",
		cli.CommandIn("arn:aws:eks:eu-west-1:1234:cluster/a", "kubectl nstpl check"))
	require.Equal(t, `kubectl nstpl check --context "my cluster"`, cli.CommandIn("my cluster", "kubectl nstpl check"))
}

// What a message about one of several clusters proposes must not run in another one.
func TestCommandsInTextsSelectTheContext(t *testing.T) {
	for name, test := range map[string]struct{ context, text, want string }{
		"without --contexts": {"", "run 'kubectl nstpl check'", "run 'kubectl nstpl check'"},
		"one command":        {"prod", "run 'kubectl nstpl check'", "run 'kubectl nstpl check --context prod'"},
		"several commands": {
			"prod", "look at the operator's log: 'kubectl get pods -n a' and 'kubectl logs -n a b' show why",
			"look at the operator's log: 'kubectl get pods -n a --context prod' and 'kubectl logs -n a b --context prod' show why",
		},
		"no command":                        {"prod", "set 'a' to the operator's name", "set 'a' to the operator's name"},
		"a command with the context":        {"prod", "'kubectl nstpl check --context prod'", "'kubectl nstpl check --context prod'"},
		"a command for the user's machine":  {"prod", "'kubectl krew info nstpl' shows it", "'kubectl krew info nstpl' shows it"},
		"the name of the program in quotes": {"prod", "the field manager 'kubectl'", "the field manager 'kubectl'"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, test.want, cli.InContext(test.context, test.text)) })
	}
}
