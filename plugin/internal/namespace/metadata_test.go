package namespace

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParseLabels(t *testing.T) {
	labels, err := parseLabels([]string{"a=1,b=", "c.d/e=x"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "1", "b": "", "c.d/e": "x"}, labels)
	for _, bad := range []string{"a", "=1", "a=b c", "a/b/c=1", ""} {
		_, err := parseLabels([]string{bad})
		require.Error(t, err, bad)
	}
}

func TestParseAnnotations(t *testing.T) {
	annotations, err := parseAnnotations([]string{"a=x, y=z"})
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a": "x, y=z"}, annotations)
	for _, bad := range []string{"a", "a/b/c=1", "a=" + strings.Repeat("x", 300<<10)} {
		_, err := parseAnnotations([]string{bad})
		require.Error(t, err)
	}
}
