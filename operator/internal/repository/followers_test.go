package repository

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
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

// A PolicyRepository that is followed again is asked first: what its follower knew may be over.
func TestARestingRepositoryKeepsNoAnswer(t *testing.T) {
	t.Parallel()
	stopped := false
	f := &follower{
		busy: true, cancel: func() { stopped = true }, answer: answer{fetched: "a"},
		pace: pace{asked: time.Now(), requested: "c"},
	}
	f.rest()
	require.True(t, stopped)
	known, requested, _ := f.follow(t.Context(), &v1alpha1.PolicyRepository{})
	require.Empty(t, known)
	require.Equal(t, "c", requested)
	require.True(t, f.isStale, "it is asked when the question that was cancelled has ended")
}
