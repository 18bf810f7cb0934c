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

// "1 more notes" would be no English, and takes as much room as the note.
func TestFirstNotes(t *testing.T) {
	t.Parallel()
	notes := []string{"a", "b", "c", "d"}
	for n, want := range map[int][]string{2: {"a", "b"}, 3: {"a", "b", "c"}, 4: {"a", "b", "2 more notes"}} {
		require.Equal(t, want, output.FirstNotes(notes[:n], 2, "%d more notes"))
	}
}
