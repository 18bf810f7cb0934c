package output

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

func TestCommentedYAML(t *testing.T) {
	t.Parallel()
	object := map[string]any{
		"kind": "ConfigMap",
		"data": map[string]any{"answer": "yes", "number": "0123", "text": "one\ntwo\n", "empty": "", "note": "a: b # c"},
		"list": []any{map[string]any{"name": "first"}, int64(2), nil, true}, "none": map[string]any{},
	}
	comments := Comments{}
	comments.Add("", "About %s.", "all")
	comments.Add("", "  kubectl get pods")
	comments.Add(".data.answer", "quoted")
	comments.Add(".list[0]", "an item\nkind: Secret")
	comments.Add(".list[0].name", "%send", strings.Repeat("word ", 25))
	got, err := CommentedYAML(object, comments)
	require.NoError(t, err)
	require.Equal(t, `# About all.
#   kubectl get pods
data:
  # quoted
  answer: "yes"
  empty: ""
  note: "a: b # c"
  number: "0123"
  text: |
    one
    two
kind: ConfigMap
list:
# an item\nkind: Secret
- # word word word word word word word word word word word word word word word word word word word word
  # word word word word word end
  name: first
- 2
- null
- true
none: {}
`, string(got))
}

// FuzzCommentedYAML checks that neither a comment nor a value changes what the document means.
func FuzzCommentedYAML(f *testing.F) {
	for _, seed := range []string{
		"plain", "a\nb: c", "\r\nkind: Secret", "\u0085x: y", "\u2028x: y", "# a", "- a", "yes", "1e3", "~", "\x00", "\x1b[31m",
		"a  \n b\n\n", "\n", " lead", "key: value", "<<", "0x10", "2026-11-23", "\u202eabc", "|\n", "...", "---\na: b", "\ufeff", "\uffff",
	} {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, text, note string) {
		object := map[string]any{"a": text, text: []any{text, map[string]any{"b": text}}}
		comments := Comments{}
		for _, path := range []string{"", ".a", "." + text + "[1]", "." + text + "[1].b"} {
			comments.Add(path, "%s", note)
		}
		document, err := CommentedYAML(object, comments)
		require.NoError(t, err)
		data, err := json.Marshal(object)
		require.NoError(t, err)
		var want, got any
		require.NoError(t, json.Unmarshal(data, &want))
		require.NoError(t, yaml.UnmarshalStrict(document, &got), "%s", document)
		require.Equal(t, want, got, "%s", document)
		require.NotRegexp(t, `[\x00-\x08\x0b-\x1f\x7f]`, string(document))
		for line := range strings.Lines(string(document)) {
			require.NotContains(t, line, "\u202e")
		}
	})
}
