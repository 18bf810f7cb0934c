package repository

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/internal/repository/files"
)

// given is a source with the given files.
type given struct {
	slot
	files fs.FS
	err   error
	reads int
}

func (*given) newest(context.Context) (revision, error) { return revision{}, nil }

func (g *given) read(ctx context.Context, commit, _ string) (*content, error) {
	if g.reads++; g.err != nil {
		return nil, g.err
	}
	if err := g.acquire(ctx); err != nil {
		return nil, err
	}
	return &content{revision: revision{commit, commit}, files: g.files, close: func() {}}, nil
}

func (*given) keep(string) error { return nil }

func (*given) close() {}

func unmeasured(string) func() { return func() {} }

const brokenBinding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: a}\n" +
	"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects:\n"

// To read the same files again at each interval would take as much memory and time again, with the same result.
func TestARefusedCommitIsNotReadAgain(t *testing.T) {
	t.Parallel()
	repository := repositoryOf("a")
	repository.Spec.Path = "foo"
	newest := revision{"c", "c"}
	f := &follower{measure: unmeasured}
	broken := &given{files: fstest.MapFS{"a.yaml": {Data: []byte(brokenBinding + strings.Repeat("- {}\n", 1100))}}}
	_, err := f.fetchNewest(t.Context(), broken, newest, repository, answer{})
	require.True(t, isRefusal(err))
	require.Equal(t, 1, broken.reads)
	p := problemOf(err)
	require.Equal(t, 1100, p.violationCount)
	require.Len(t, p.violations, maxViolations)
	require.Contains(t, p.message, "(and 1099 more)")

	before := answer{source: sourceOf(repository), refused: newest, refusal: err}
	_, again := f.fetchNewest(t.Context(), broken, newest, repository, before)
	require.Same(t, err, again)
	require.Equal(t, 1, broken.reads)
	// Another commit, other trusted keys, and another path are something else.
	_, err = f.fetchNewest(t.Context(), broken, revision{"d", "d"}, repository, before)
	require.Error(t, err)
	_, err = f.fetchNewest(t.Context(), broken, revision{"c", "other keys"}, repository, before)
	require.Error(t, err)
	repository.Spec.Path = "bar"
	_, err = f.fetchNewest(t.Context(), broken, newest, repository, before)
	require.Error(t, err)
	require.Equal(t, 4, broken.reads)
	for err, want := range map[error]bool{
		files.Failf(files.LimitExceeded, "large"): true, files.Failf(files.Unreachable, "gone"): false,
		files.Failf(files.NotVerified, "unsigned"): false, errors.New("other"): false,
	} {
		require.Equal(t, want, isRefusal(err), err)
	}
}

// Two large trees do not fit into memory beside each other.
func TestSourcesAreReadOneAfterTheOther(t *testing.T) {
	var first, second slot
	require.NoError(t, first.acquire(t.Context()))
	require.NoError(t, first.acquire(t.Context()), "it holds the slot")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, second.acquire(canceled), context.Canceled)
	second.release()
	first.release()
	first.release()
	require.NoError(t, second.acquire(t.Context()))
	second.release()

	source := &given{err: errors.New("unreachable")}
	_, err := fetch(t.Context(), source, "c", "foo", unmeasured)
	require.Error(t, err)
	source.err, source.files = nil, fstest.MapFS{}
	_, err = fetch(t.Context(), source, "c", "foo", unmeasured)
	require.NoError(t, err)
	require.False(t, source.isHeld, "the slot is released")
	require.Empty(t, slots)
}

func TestLoadingEndsWithItsContext(t *testing.T) {
	t.Parallel()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := load(canceled, fstest.MapFS{"a.yaml": {Data: []byte(brokenBinding)}}, "c", "foo")
	require.ErrorIs(t, err, context.Canceled)
}

func TestTreesFitIntoTheMemoryOfTheContainer(t *testing.T) {
	before := debug.SetMemoryLimit(math.MaxInt64)
	defer debug.SetMemoryLimit(before)
	require.Equal(t, hierarchy.MaxTreeValues, maxValues())
	debug.SetMemoryLimit(384 << 20 / 10 * 9)
	require.InDelta(t, 604_000, maxValues(), 1000)
}

// The API server stores no status of more than a megabyte, and names and values in a commit may be as long.
func TestStatusesAreSmall(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("e", 400_000)
	id := inventory.ID{GroupKind: schema.GroupKind{Kind: "ClusterRole"}, Name: long}
	var violations []hierarchy.Violation
	o := outcome{Plan: inventory.Plan{}}
	for range 30 {
		violations = append(violations, hierarchy.Violation{Path: long, Message: long})
		o.Conflicts = append(o.Conflicts, inventory.Conflict{ID: id, Reason: long})
		o.failures = append(o.failures, failure{id, errors.New(long)})
		o.contested = append(o.contested, contested{id, long})
	}
	known := answer{problem: problemOf(newViolationsError("c", violations, len(violations)))}
	status := &v1alpha1.PolicyRepositoryStatus{}
	reportProblem(status, known)
	reportOutcome(status, &vetted{commit: "c", root: "foo"}, o, time.Now())
	conditionOf(known, "", nil).set(status, 1)
	require.Contains(t, status.Conditions[0].Message, "… (and 29 more); no commit is in force yet")
	shorten(status)
	data, err := json.Marshal(status)
	require.NoError(t, err)
	require.Less(t, len(data), 200_000)
	require.Len(t, status.Violations, maxViolations)
	require.Len(t, status.Failures, maxListed)
	again := status.DeepCopy()
	shorten(again)
	require.Equal(t, status, again)
	require.Equal(t, int32(30), status.ViolationCount)
}
