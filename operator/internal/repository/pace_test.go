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

	p.answered("", true, false, now)
	require.Equal(t, interval, due(""))
	require.Zero(t, due("a"), "a request that came while the server was asked")

	p.answered("a", true, false, now)
	require.Equal(t, interval, due("a"), "the commit has come")

	p.answered("b", false, false, now)
	require.Equal(t, 2*time.Second, due("b"), "the request came before the commit")
	require.Zero(t, due("c"))
	p.answered("b", false, false, now)
	require.Equal(t, 10*time.Second, due("b"))
	now = now.Add(11 * time.Second)
	require.Equal(t, -time.Second, due("b"))
	p.answered("b", false, false, now)
	require.Equal(t, interval, due("b"), "there is no new commit")

	p.answered("c", false, false, now)
	p.answered("c", true, false, now)
	require.Equal(t, interval, due("c"), "the commit came late")

	p.answered("d", false, false, now)
	require.Equal(t, time.Second, p.wait(time.Second, "d", now), "the interval is shorter")
}

// A source that does not answer is asked again soon, however long the interval is.
func TestPaceAfterFailures(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := &pace{}
	var waits []time.Duration
	for range 9 {
		p.answered("", false, true, now)
		waits = append(waits, p.wait(time.Hour, "", now)/time.Second)
	}
	require.Equal(t, []time.Duration{5, 10, 20, 40, 80, 160, 320, 320, 320}, waits)
	require.Equal(t, time.Second, p.wait(time.Second, "", now), "the interval is shorter")
	p.answered("", true, false, now)
	require.Equal(t, time.Hour, p.wait(time.Hour, "", now))
}
