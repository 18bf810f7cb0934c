package manifest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

// plainDocuments are documents of trees. Those with true must be plain.
var plainDocuments = map[string]bool{
	"kind: Namespace\nmetadata:\n  name: team-a\n  labels: {tier: prod, example.com/owner: a@b.c}\n":      true,
	"rules:\n- apiGroups: [\"\"]\n  resources: ['*']\n  verbs: [get, list]\n":                             true,
	"spec:\n  hard:\n    pods: 10\n    cpu: 500m\n    memory: 16Gi\n    quoted: \"a \\\"b\\\" \\\\ c\"\n": true,
	"b: 1\na: 0\nc: true\nd: []\ne: {}\n":                                                                 true,
	"a: yes\n":                                                                                            false,
	"a: 'yes'\n":                                                                                          true,
	"on: b\n":                                                                                             false,
	"a: 010\n":                                                                                            false,
	"a: 1e3\n":                                                                                            false,
	"a: 1_000\n":                                                                                          false,
	"a: 2001-01-01\n":                                                                                     false,
	"a: 190:20:30\n":                                                                                      false,
	"a:\n":                                                                                                false,
	"a: ~\n":                                                                                              false,
	"a: null\n":                                                                                           false,
	"a: &x b\nc: *x\n":                                                                                    false,
	"a: !!str 1\n":                                                                                        false,
	"<<: {a: b}\n":                                                                                        false,
	"a: |\n  b\n":                                                                                         false,
	"a: b # c\n":                                                                                          false,
	"a: \"<b>\"\n":                                                                                        false,
	"a: \"\\u0085\"\n":                                                                                    false,
	"a: b\na: c\n":                                                                                        false,
	"a: 12345678901234567":                                                                                false,
	"? a\n: b\n":                                                                                          true,
	"1: b\n":                                                                                              false,
	"\ta: b\n":                                                                                            false,
}

func TestPlainJSONIsThatOfTheParser(t *testing.T) {
	for text, want := range plainDocuments {
		t.Run(text, func(t *testing.T) {
			require.Equal(t, want, checkPlainJSON(t, []byte(text)))
		})
	}
}

func FuzzPlainJSON(f *testing.F) {
	for text := range plainDocuments {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, content []byte) { checkPlainJSON(t, content) })
}

// checkPlainJSON returns whether a document is plain. It fails the test if the parser of the API server reads a plain
// document in another way.
func checkPlainJSON(t *testing.T, content []byte) bool {
	t.Helper()
	node, _, err := parseNode(content)
	if err != nil || node == nil {
		return false
	}
	data, plain := plainJSON(node, content)
	if plain {
		want, err := yaml.YAMLToJSON(content)
		require.NoError(t, err)
		require.Equal(t, string(want), string(data))
	}
	return plain
}
