package render

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestExpandReplacesTokens(t *testing.T) {
	values := Values{
		Namespace: "team-a", Creator: "alice", Labels: map[string]string{"tier": "gold", "example.com/Cost_center.1": "42"},
		Annotations: map[string]string{"tier": "$(NAMESPACE) \"x\""},
	}
	tests := []struct {
		name, in, want string
	}{
		{"an empty string", "", ""},
		{"no token", "plain", "plain"},
		{"the namespace", "$(NAMESPACE)", "team-a"},
		{"the creator", "$(CREATOR)", "alice"},
		{"tokens side by side", "$(NAMESPACE)$(CREATOR)", "team-aalice"},
		{"tokens inside text", "a $(CREATOR) b $(NAMESPACE) c", "a alice b team-a c"},
		{"an escape", "$$(NAMESPACE)", "$(NAMESPACE)"},
		{"an escape of the creator", "a$$(CREATOR)b", "a$(CREATOR)b"},
		{"an escape between tokens", "$(CREATOR)$$(CREATOR)$(CREATOR)", "alice$(CREATOR)alice"},
		{"a dollar before an escape", "$$$(NAMESPACE)", "$$(NAMESPACE)"},
		{"two dollars before an escape", "$$$$(NAMESPACE)", "$$$(NAMESPACE)"},
		{"an environment variable is not a token", "$(FOO)", "$(FOO)"},
		{"an escaped environment variable is kept", "$$(FOO)", "$$(FOO)"},
		{"other syntaxes are not tokens", "${NAMESPACE} $NAMESPACE (NAMESPACE)", "${NAMESPACE} $NAMESPACE (NAMESPACE)"},
		{"lower case is not a token", "$(namespace)", "$(namespace)"},
		{"spaces are not part of a token", "$( NAMESPACE )", "$( NAMESPACE )"},
		{"an incomplete token", "$(NAMESPACE", "$(NAMESPACE"},
		{"an incomplete token before a token", "$($(NAMESPACE)", "$(team-a"},
		{"a label", "$(LABEL:tier)", "gold"},
		{"a label with a prefix, in text", "a-$(LABEL:example.com/Cost_center.1)-b", "a-42-b"},
		{"an annotation, in which there is a token", "<$(ANNOTATION:tier)>", "<$(NAMESPACE) \"x\">"},
		{"tokens of all kinds", "$(LABEL:tier)$(NAMESPACE)$(CREATOR)", "goldteam-aalice"},
		{"an escaped label", "$$(LABEL:tier)$(LABEL:tier)", "$(LABEL:tier)gold"},
		{"a missing label stays", "$(LABEL:none)", "$(LABEL:none)"},
		{"a label without a key", "$(LABEL:) $(LABEL)", "$(LABEL:) $(LABEL)"},
		{"a label with a key that none has", "$(LABEL:a b) $(LABEL:a:b)", "$(LABEL:a b) $(LABEL:a:b)"},
		{"an incomplete label", "$(LABEL:tier", "$(LABEL:tier"},
		{"a label in lower case", "$(label:tier)", "$(label:tier)"},
		{"a token in a token", "$(LABEL:$(LABEL:tier))", "$(LABEL:gold)"},
		{"dollars", "$ $$ $$$", "$ $$ $$$"},
		{"a dollar at the end", "$(NAMESPACE)$", "team-a$"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, values.expand(test.in))
		})
	}
}

func TestExpandKeepsTheCreatorsNameAsItIs(t *testing.T) {
	for _, creator := range []string{
		"$(NAMESPACE)", "$(CREATOR)", "$$(CREATOR)", "$", "$$", "(CREATOR)", `"; kind: "Group`, "a: b", "a\nb: c", "\\",
		"'", "漢字", "a\x00b", "\u0085",
		strings.Repeat("n", 1024),
	} {
		require.Equal(t, "<"+creator+">", Values{Creator: creator}.expand("<$(CREATOR)>"))
	}
}

func TestContainsTokenIgnoresEscapedTokens(t *testing.T) {
	tests := []struct {
		in                 string
		namespace, creator bool
	}{
		{"", false, false},
		{"a$(NAMESPACE)", true, false},
		{"$(CREATOR)", false, true},
		{"$$(CREATOR)$(NAMESPACE)", true, false},
		{"$$(CREATOR)", false, false},
		{"$(FOO)", false, false},
	}
	for _, test := range tests {
		t.Run(test.in, func(t *testing.T) {
			require.Equal(t, test.namespace, containsToken(test.in, NamespaceToken))
			require.Equal(t, test.creator, containsToken(test.in, CreatorToken))
		})
	}
}

var tokens = regexp.MustCompile(`\$?\$\((NAMESPACE|CREATOR|(LABEL|ANNOTATION):([-A-Za-z0-9_./]+))\)`)

// expandSlowly does the same as expand, with regular expressions.
func expandSlowly(v Values, s string) string {
	return tokens.ReplaceAllStringFunc(s, func(token string) string {
		parts := tokens.FindStringSubmatch(token)
		var value string
		switch {
		case strings.HasPrefix(token, "$$"):
			return token[1:]
		case token == NamespaceToken:
			return v.Namespace
		case token == CreatorToken:
			return v.Creator
		case parts[2] == "LABEL":
			value = v.Labels[parts[3]]
		default:
			value = v.Annotations[parts[3]]
		}
		if value == "" {
			return token
		}
		return value
	})
}

func FuzzExpand(f *testing.F) {
	f.Add("$(NAMESPACE) $$(CREATOR) $(CREATOR)", "team-a", "alice", "tier", "gold")
	f.Add("$$$(NAMESPACE)$(FOO)$", "$(CREATOR)", "$(NAMESPACE)", "a", "$(NAMESPACE)")
	f.Add("$($(NAMESPACE)", "", "\"\n:", "a/b", "x")
	f.Add("$(LABEL:tier)$$(LABEL:tier)$(ANNOTATION:tier)$(LABEL:other)", "n", "c", "tier", "$(LABEL:tier)")
	f.Add("$$$(LABEL:a/b)$(LABEL:a b)$(LABEL:$(ANNOTATION:a/b)", "n", "c", "a/b", "\"}, {\"kind\": \"Group")
	f.Fuzz(func(t *testing.T, s, namespace, creator, key, value string) {
		if !utf8.ValidString(s) {
			return // JSON strings are valid UTF-8
		}
		values := Values{
			Namespace: namespace, Creator: creator, Labels: map[string]string{key: value},
			Annotations: map[string]string{key: value + "a"},
		}
		require.Equal(t, expandSlowly(values, s), values.expand(s))
		if !tokens.MatchString(s) {
			require.Equal(t, s, values.expand(s))
		}
		other := values
		other.Creator += "x"
		require.Equal(t, containsToken(s, CreatorToken), values.expand(s) != other.expand(s))
		require.Equal(t, s, values.expand(escape(s)), "an escaped text stays as it is")
		_, constant := Literal(escape(s))
		require.True(t, constant)
		if !containsValue(s) {
			require.Equal(t, Values{Namespace: namespace, Creator: creator}.expand(s), values.expand(s))
		}
	})
}
