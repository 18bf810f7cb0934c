package repository

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
)

// existing lists PolicyRepositories.
type existing struct {
	client.Client
	items []v1alpha1.PolicyRepository
}

func (e existing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.PolicyRepositoryList).Items = e.items
	return nil
}

// repositoryOf returns a PolicyRepository with a UID.
func repositoryOf(uid types.UID) *v1alpha1.PolicyRepository {
	return &v1alpha1.PolicyRepository{ObjectMeta: metav1.ObjectMeta{UID: uid}}
}

// What was fetched for a PolicyRepository is removed with it, and what others need stays.
func TestFetchedCommitsOfDeletedRepositoriesAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	kept := repositoryOf("kept")
	r := &Repositories{Client: existing{items: []v1alpha1.PolicyRepository{*kept}}, sources: &sources{dir: dir}}
	for _, repository := range []*v1alpha1.PolicyRepository{repositoryOf("deleted"), kept} {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, string(repository.UID), "objects"), 0o700))
		r.of(repository)
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, "other"), 0o700))
	require.NoError(t, r.forgetDeleted(t.Context()))
	require.Equal(t, []types.UID{"kept"}, slices.Collect(maps.Keys(r.followed)))
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
