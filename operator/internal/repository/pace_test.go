package repository

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestPace(t *testing.T) {
	t.Parallel()
	const interval = time.Hour
	now := time.Now()
	p := &pace{}
	due := func(requested string) time.Duration { return p.wait(interval, requested, now) }
	require.LessOrEqual(t, due(""), time.Duration(0), "a new process asks at once")

	p.answered("", true, now)
	require.Equal(t, interval, due(""))
	require.Zero(t, due("a"), "a request that came while the server was asked")

	p.answered("a", true, now)
	require.Equal(t, interval, due("a"), "the commit has come")

	p.answered("b", false, now)
	require.Equal(t, 2*time.Second, due("b"), "the request came before the commit")
	require.Zero(t, due("c"))
	p.answered("b", false, now)
	require.Equal(t, 10*time.Second, due("b"))
	now = now.Add(11 * time.Second)
	require.Equal(t, -time.Second, due("b"))
	p.answered("b", false, now)
	require.Equal(t, interval, due("b"), "there is no new commit")

	p.answered("c", false, now)
	p.answered("c", true, now)
	require.Equal(t, interval, due("c"), "the commit came late")

	p.answered("d", false, now)
	require.Equal(t, time.Second, p.wait(time.Second, "d", now), "the interval is shorter")
}
