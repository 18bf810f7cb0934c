package memory

import (
	"math"
	"runtime/debug"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/stretchr/testify/require"
)

func TestAMissingLimitIsLogged(t *testing.T) {
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(-1))
	for limit, want := range map[int64]int{math.MaxInt64: 1, 300 << 20: 0} {
		var lines []string
		debug.SetMemoryLimit(limit)
		LogUnlimited(funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{}))
		require.Len(t, lines, want, "the limit is %d bytes", limit)
	}
}
