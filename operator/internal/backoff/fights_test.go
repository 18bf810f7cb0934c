package backoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestCorrectionsOfAFightAreEverSlower(t *testing.T) {
	fights := NewFights[string, string]()
	now := time.Unix(0, 0)
	for range quickRounds - 1 {
		fights.Corrected("team", "object", "rival", now)
		require.Zero(t, fights.Wait("team", "object", LastPause, now))
		require.Empty(t, fights.In("team", now))
	}
	var pauses []time.Duration
	for range 11 {
		fights.Corrected("team", "object", "rival", now)
		wait := fights.Wait("team", "object", LastPause, now)
		pauses = append(pauses, wait)
		now = now.Add(wait)
		require.Zero(t, fights.Wait("team", "object", LastPause, now), "it is due")
	}
	require.Equal(t, []time.Duration{
		time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second,
		64 * time.Second, 128 * time.Second, 256 * time.Second, LastPause, LastPause,
	}, pauses)
	fight := fights.In("team", now)["object"]
	require.Equal(t, "rival", fight.By)
	require.Equal(t, quickRounds+10, fight.Rounds)
	require.Zero(t, fights.Wait("team", "other", LastPause, now))
	require.Zero(t, fights.Wait("other", "object", LastPause, now))
}

func TestAFightEnds(t *testing.T) {
	fights := NewFights[string, string]()
	now := time.Unix(0, 0)
	for range 100 {
		fights.Corrected("team", "object", "rival", now)
	}
	require.Len(t, fights.In("team", now.Add(FightEnds-time.Second)), 1)
	now = now.Add(FightEnds)
	require.Empty(t, fights.In("team", now))
	fights.Corrected("team", "object", "rival", now)
	require.Zero(t, fights.Wait("team", "object", LastPause, now), "a new fight begins")
	fights.Corrected("other", "object", "rival", now.Add(2*FightEnds))
	require.Len(t, fights.groups, 1, "what is over is forgotten")
	fights.Forget("other")
	require.Empty(t, fights.groups)
}
