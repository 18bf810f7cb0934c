package cli_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"nstpl.dev/nstpl/plugin/internal/cli"
)

// What a message about one cluster proposes must not run in another one.
func TestCommandsInTextsSelectTheCluster(t *testing.T) {
	for name, test := range map[string]struct{ context, text, want string }{
		"the current context": {"", "run 'kubectl nstpl check'", "run 'kubectl nstpl check'"},
		"one command":         {"prod", "run 'kubectl nstpl check'", "run 'kubectl nstpl check --context prod'"},
		"several commands": {
			"prod", "look at the operator's log: 'kubectl get pods -n a' and 'kubectl logs -n a b' show why",
			"look at the operator's log: 'kubectl get pods -n a --context prod' and 'kubectl logs -n a b --context prod' show why",
		},
		"commands at the ends of lines": {
			"prod", "To take the change back: kubectl nstpl rollout undo a\nTo confirm: kubectl nstpl sync confirm b 1a2b3c4",
			"To take the change back: kubectl nstpl rollout undo a --context prod\n" +
				"To confirm: kubectl nstpl sync confirm b 1a2b3c4 --context prod",
		},
		"a script": {
			"prod", "These commands grant it:\necho '{a: b}' | kubectl create -f -\nkubectl create clusterrolebinding a --user='a b'",
			"These commands grant it:\necho '{a: b}' | kubectl create -f - --context prod\n" +
				"kubectl create clusterrolebinding a --user='a b' --context prod",
		},
		"no command":                        {"prod", "set 'a' to the operator's name", "set 'a' to the operator's name"},
		"a command with the context":        {"prod", "'kubectl nstpl check --context test'", "'kubectl nstpl check --context test'"},
		"a command for the user's machine":  {"prod", "'kubectl krew info nstpl' shows it", "'kubectl krew info nstpl' shows it"},
		"a reference to the help":           {"prod", "see 'kubectl nstpl diff -h' for help", "see 'kubectl nstpl diff -h' for help"},
		"the name of the program in quotes": {"prod", "the field manager 'kubectl'", "the field manager 'kubectl'"},
		"the ARN of a cluster": {
			"arn:aws:eks:eu-west-1:1234:cluster/a", "'kubectl nstpl check'",
			"'kubectl nstpl check --context arn:aws:eks:eu-west-1:1234:cluster/a'",
		},
		"a name of two words": {"my cluster", "'kubectl nstpl check'", `'kubectl nstpl check --context "my cluster"'`},
		"a name that a shell would expand": {
			"a$(b)`c`\"\\", "'kubectl nstpl check'", `'kubectl nstpl check --context "a\$(b)` + "\\`c\\`" + `\"\\"'`,
		},
		"a name with an apostrophe": {
			"it's", "'kubectl get a' and 'kubectl get b'",
			`'kubectl get a --context "it's"' and 'kubectl get b --context "it's"'`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			streams, _, _, _ := genericiooptions.NewTestIOStreams()
			session := cli.NewSession(streams)
			require.Equal(t, test.want, session.ForContext(test.context).Commands(test.text), "--contexts")
			*session.Config.Context = test.context
			require.Equal(t, test.want, session.Commands(test.text), "--context")
		})
	}
}

// The same name of a context is another cluster in another kubeconfig.
func TestCommandsKeepAllFlagsThatSelectACluster(t *testing.T) {
	streams, _, _, _ := genericiooptions.NewTestIOStreams()
	session := cli.NewSession(streams)
	*session.Config.KubeConfig, *session.Config.APIServer = "prod.yaml", "https://prod:6443"
	require.Equal(t, "'kubectl nstpl check --kubeconfig prod.yaml --context a -s https://prod:6443'",
		session.ForContext("a").Commands("'kubectl nstpl check'"))
	require.Equal(t, "'kubectl nstpl check --context a -s https://prod:6443'",
		session.ForContext("a").CommandsElsewhere("'kubectl nstpl check'"), "the file is on this machine only")
}

// The error of a command may be one that a note has as well.
func TestCommandsGetFlagsOnce(t *testing.T) {
	streams, _, _, errOut := genericiooptions.NewTestIOStreams()
	session := cli.NewSession(streams)
	*session.Config.KubeConfig, *session.Config.Context = "it's.yaml", "prod"
	session.Note("%s", session.Commands("run 'kubectl nstpl check', and then 'kubectl nstpl status'"))
	require.Equal(t, `run 'kubectl nstpl check --kubeconfig "it's.yaml" --context prod', and then `+
		`'kubectl nstpl status --kubeconfig "it's.yaml" --context prod'`+"\n", errOut.String())
}
