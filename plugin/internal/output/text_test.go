package output_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"nstpl.dev/nstpl/plugin/internal/output"
)

func TestCount(t *testing.T) {
	require.Equal(t, "0 namespaces", output.Count(0, "namespace"))
	require.Equal(t, "1 namespace", output.Count(1, "namespace"))
	require.Equal(t, "2 namespaces", output.Count(2, "namespace"))
}

func TestFirstFew(t *testing.T) {
	require.Equal(t, "a", output.FirstFew([]string{"a", "a"}))
	require.Equal(t, "a, b, c", output.FirstFew([]string{"c", "b", "a"}))
	require.Equal(t, "a, b, c and 2 more", output.FirstFew([]string{"e", "d", "c", "b", "a"}))
}
