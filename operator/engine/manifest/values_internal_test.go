package manifest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"
)

// countNodes returns how many nodes the parser makes of a mapping, a list or a scalar.
func countNodes(node *kyaml.Node) int {
	count := 1
	for _, inside := range node.Content {
		count += countNodes(inside)
	}
	return count
}

// Documents are parsed only if they have few values, so that number must not be less than what the parser makes.
func TestDocumentsHaveNoMoreNodesThanCounted(t *testing.T) {
	t.Parallel()
	texts := []string{
		"a", "[a,b]", "[:,:]", "[a: b,c: d]", "{a,b}", "{a: ,b: }", "[[],[],{}]", "- a\n- b: c\n  d:\n-\n- - - e\n",
		"? a\n? - b\n: c\n", "? [?,?]\n: {?,?}\n", "a: |\n  x, y: [\nb: &c [d]\ne: *c\n", "-\t-\n",
	}
	pieces := strings.Split("[ ] { } , : ? - a b' \" | > # & * ! ~ \n \t", " ")
	pieces = append(pieces, " ", "- ", "? ", ": ", "\n- ", "\n  ", "[[", "[]", "{}", "\r", "\u0085", "\u2028", "\ufeff")
	random := rand.New(rand.NewPCG(1, 2))
	for range 200_000 {
		var text strings.Builder
		for range random.IntN(12) {
			text.WriteString(pieces[random.IntN(len(pieces))])
		}
		texts = append(texts, text.String())
	}
	parsed := 0
	for _, text := range texts {
		document := Document{Content: Normalize([]byte(text))}
		node, _, err := parseNode(document.Content)
		if err != nil || node == nil {
			continue
		}
		parsed++
		require.LessOrEqual(t, countNodes(node), document.maxNodes(), "%q", text)
	}
	require.Greater(t, parsed, 10_000)
}

// Definitions of custom resources have long descriptions, and lists of them are large. Only trees have a limit.
func TestDocumentsOfManyWords(t *testing.T) {
	t.Parallel()
	text := "a: |\n  " + strings.Repeat("words, words: words - ", 400_000) + "\n"
	parsed, err := Document{Content: []byte(text)}.Parse()
	require.NoError(t, err)
	require.Equal(t, 3, parsed.Values)
}

func TestValuesAreCounted(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		`{"a":[1,{"b":null}],"c":"[,]"}`: 9, "a: [1, {b: null}]\nc: '[,]'": 9,
		`{"a":"\/","b":[]}`:   5, // which is not valid YAML
		"a: &x [1, 2]\nb: *x": 9,
	} {
		for _, document := range Split([]byte(text)) {
			parsed, err := document.Parse()
			require.NoError(t, err)
			require.Equal(t, want, parsed.Values, text)
			_, err = document.ParseWithin(want - 1)
			var syntax *SyntaxError
			require.ErrorAs(t, err, &syntax)
			require.True(t, syntax.IsTooLarge)
		}
	}
}
