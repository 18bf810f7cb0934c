package population

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPassesUpToANumberEndWhicheverBeginLater(t *testing.T) {
	t.Parallel()
	var p passes
	require.True(t, p.haveEnded(p.begun()))
	endFirst := p.begin()
	endSecond := p.begin()
	number := p.begun()
	endLater := p.begin()
	endSecond()
	require.False(t, p.haveEnded(number))
	endFirst()
	require.True(t, p.haveEnded(number), "a pass that began later does not count")
	require.False(t, p.haveEnded(p.begun()))
	endLater()
	require.True(t, p.haveEnded(p.begun()))
}
