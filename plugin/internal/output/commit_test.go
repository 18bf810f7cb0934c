package output

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCommit(t *testing.T) {
	for name, want := range map[string]string{
		"1a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d": "commit 1a2b3c4",
		"1a":                       "commit 1a",
		"sha256:1a2b3c4d5e6f70819": "artifact sha256:1a2b3c4",
		"sha256:1a":                "artifact sha256:1a",
		"":                         "commit ",
		"something:12345678901234": "artifact something:1234567",
	} {
		require.Equal(t, want, Commit(ShortCommit(name)))
	}
}
