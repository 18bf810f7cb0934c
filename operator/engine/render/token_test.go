package render

import (
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestExpand(t *testing.T) {
	values := Values{Namespace: "team-a", Creator: "alice"}
	tests := []struct {
		name, in, want string
	}{
		{"nothing", "", ""},
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
		{"the token of an environment variable", "$(FOO)", "$(FOO)"},
		{"its escape", "$$(FOO)", "$$(FOO)"},
		{"another syntax", "${NAMESPACE} $NAMESPACE (NAMESPACE)", "${NAMESPACE} $NAMESPACE (NAMESPACE)"},
		{"small letters", "$(namespace)", "$(namespace)"},
		{"spaces", "$( NAMESPACE )", "$( NAMESPACE )"},
		{"half a token", "$(NAMESPACE", "$(NAMESPACE"},
		{"half a token before one", "$($(NAMESPACE)", "$(team-a"},
		{"dollars", "$ $$ $$$", "$ $$ $$$"},
		{"a dollar at the end", "$(NAMESPACE)$", "team-a$"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			require.Equal(t, test.want, values.expand(test.in))
		})
	}
}

func TestExpandTakesAnyCreatorAsItIs(t *testing.T) {
	for _, creator := range []string{
		"$(NAMESPACE)", "$(CREATOR)", "$$(CREATOR)", "$", "$$", "(CREATOR)", `"; kind: "Group`, "a: b", "a\nb: c", "\\",
		"'", "漢字", "a\x00b", "\u0085",
		strings.Repeat("n", 1024),
	} {
		require.Equal(t, "<"+creator+">", Values{Creator: creator}.expand("<$(CREATOR)>"))
	}
}

func TestHolds(t *testing.T) {
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
			require.Equal(t, test.namespace, holds(test.in, NamespaceToken))
			require.Equal(t, test.creator, holds(test.in, CreatorToken))
		})
	}
}

var tokens = regexp.MustCompile(`\$?\$\((NAMESPACE|CREATOR)\)`)

// expandSlowly says the same as expand, in another way.
func expandSlowly(v Values, s string) string {
	return tokens.ReplaceAllStringFunc(s, func(token string) string {
		switch {
		case strings.HasPrefix(token, "$$"):
			return token[1:]
		case token == NamespaceToken:
			return v.Namespace
		}
		return v.Creator
	})
}

func FuzzExpand(f *testing.F) {
	f.Add("$(NAMESPACE) $$(CREATOR) $(CREATOR)", "team-a", "alice")
	f.Add("$$$(NAMESPACE)$(FOO)$", "$(CREATOR)", "$(NAMESPACE)")
	f.Add("$($(NAMESPACE)", "", "\"\n:")
	f.Fuzz(func(t *testing.T, s, namespace, creator string) {
		if !utf8.ValidString(s) {
			return // what a regular expression makes of it is another matter; JSON holds none
		}
		values := Values{Namespace: namespace, Creator: creator}
		require.Equal(t, expandSlowly(values, s), values.expand(s))
		if !tokens.MatchString(s) {
			require.Equal(t, s, values.expand(s))
		}
		require.Equal(t, holds(s, CreatorToken),
			values.expand(s) != Values{Namespace: namespace, Creator: creator + "x"}.expand(s))
	})
}
