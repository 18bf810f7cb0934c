package hierarchy

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/operator/engine/manifest"
)

// To find the line of each of many fields, one after the other, would take minutes.
func TestNoLineIsSearchedForViolationsThatAreOnlyCounted(t *testing.T) {
	t.Parallel()
	parsed, err := manifest.Split([]byte("a: 1\n\nb: 2\n"))[0].Parse()
	require.NoError(t, err)
	l := newLoader("foo", 10).ofFile()
	for range maxListed {
		require.Equal(t, 3, l.line(parsed.Lines, "b"))
		l.violate("schema", "foo/a.yaml", 3, "b is wrong", "correct it")
	}
	require.Zero(t, l.line(parsed.Lines, "b"))
}
