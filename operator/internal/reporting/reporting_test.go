package reporting

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestShorten(t *testing.T) {
	t.Parallel()
	longest := strings.Repeat("a", MaxMessage)
	for name, test := range map[string]struct{ message, want string }{
		"an empty message":           {"", ""},
		"the longest message":        {longest, longest},
		"one byte more":              {longest + "b", longest + "…"},
		"a character across the cut": {longest[1:] + "é", longest[1:] + "…"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Shorten(test.message)
			require.Equal(t, test.want, got)
			require.True(t, utf8.ValidString(got))
		})
	}
}
