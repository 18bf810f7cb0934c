package scaffold

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSmallestLimits(t *testing.T) {
	t.Parallel()
	require.Equal(t, map[string]any{"cpu": "500m", "pods": "3"}, smallest([]map[string]any{
		{"cpu": "1", "pods": int64(3), "memory": "five", "secrets": "1e100"},
		{"cpu": "500m", "services": "1e-100"}, // these take long to parse or to compare
	}))
}
