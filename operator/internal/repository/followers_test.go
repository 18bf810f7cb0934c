package repository

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"
)

// What was fetched for a PolicyRepository is removed with it, and what others need stays.
func TestFetchedCommitsOfDeletedRepositoriesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var all followers
	for _, uid := range []types.UID{"deleted", "kept"} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, string(uid), "objects"), 0o700))
		all.get(uid, func() *follower { return &follower{sources: &sources{dir: dir}} })
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "other"), 0o700))
	all.keep([]types.UID{"kept"})
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 2)
	require.Equal(t, "kept", entries[0].Name())
	require.Equal(t, "other", entries[1].Name())
}

// A PolicyRepository that is followed again is asked first: what its follower knew may be over. Its commits stay.
func TestARestingRepositoryKeepsNoAnswer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "resting", "objects"), 0o700))
	var all followers
	create := func() *follower { return &follower{sources: &sources{dir: dir}} }
	stopped := false
	before := all.get("resting", create)
	before.busy, before.cancel, before.answer = true, func() { stopped = true }, answer{fetched: "a"}
	all.rest("resting")
	require.True(t, stopped)
	require.Empty(t, all.get("resting", create).answer)
	require.DirExists(t, filepath.Join(dir, "resting", "objects"))
}
