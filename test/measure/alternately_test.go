package measure

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAlternately(t *testing.T) {
	t.Parallel()
	var calls []string
	call := func(side string) func(int) error {
		return func(index int) error {
			calls = append(calls, fmt.Sprint(side, index))
			return nil
		}
	}
	a, b, err := Alternately(1, 3, call("a"), call("b"))
	require.NoError(t, err)
	require.Len(t, a, 3)
	require.Len(t, b, 3)
	require.Equal(t, []string{"a-1", "b-1", "b0", "a0", "a1", "b1", "b2", "a2"}, calls)

	failure := errors.New("no")
	_, _, err = Alternately(0, 3, call("a"), func(int) error { return failure })
	require.ErrorIs(t, err, failure)
}
