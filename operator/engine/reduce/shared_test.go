package reduce

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestATableForgetsWhatIsNotUsed(t *testing.T) {
	var numbers Table[int, *int]
	created := 0
	value := func(key int) *int { return numbers.Value(key, func() *int { created++; return new(int) }) }
	first := value(-1)
	for key := range 10 * mostShared {
		require.Same(t, first, value(-1), "a value that is used is kept")
		value(key)
	}
	require.Equal(t, 1+10*mostShared, created)
	require.LessOrEqual(t, len(numbers.recent)+len(numbers.older), 2*mostShared)
}
