package repository

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"math"
	"runtime/debug"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/files"
	"nstpl.dev/nstpl/operator/engine/hierarchy"
	"nstpl.dev/nstpl/operator/engine/inventory"
	"nstpl.dev/nstpl/operator/internal/repository/git"
)

// given is a source with the given files.
type given struct {
	files fs.FS
	// at has the files of directories that have others.
	at  map[string]fs.FS
	err error
	// tip is the newest revision, and unreachable why it is unknown.
	tip         string
	unreachable error
	reads       []string
	directories []string
}

func (g *given) newest(context.Context) (revision, error) { return g.revision(g.tip), g.unreachable }

func (*given) revision(commit string) revision { return revision{commit, commit} }

func (g *given) read(ctx context.Context, commit, directory string, wait wait) (*content, error) {
	g.directories = append(g.directories, directory)
	if g.reads = append(g.reads, commit); g.err != nil {
		return nil, g.err
	}
	if err := wait(ctx); err != nil {
		return nil, err
	}
	tree := g.files
	if other := g.at[directory]; other != nil {
		tree = other
	}
	return &content{revision: revision{commit, commit}, files: tree, close: func() {}}, nil
}

func (*given) keep(string) error { return nil }

func (*given) close() {}

// absent is an API server without objects.
type absent struct{ client.Client }

func (absent) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, "")
}

func unmeasured(string) func() { return func() {} }

const brokenBinding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: a}\n" +
	"roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}\nsubjects:\n"

// To read the same files again at each interval would take as much memory and time again, with the same result.
func TestARefusedCommitIsNotReadAgain(t *testing.T) {
	t.Parallel()
	newest := revision{"c", "c"}
	f := &follower{measure: unmeasured}
	broken := &given{files: fstest.MapFS{"a.yaml": {Data: []byte(brokenBinding + strings.Repeat("- {}\n", 1100))}}}
	var known refused
	_, err := f.fetch(t.Context(), broken, newest, "foo", &known)
	require.True(t, isRefusal(err))
	require.Equal(t, refused{of: newest, err: err}, known)
	p := problemOf(err)
	require.Equal(t, 1100, p.violationCount)
	require.Len(t, p.violations, maxViolations)
	require.Contains(t, p.message, "(and 1099 more)")

	_, again := f.fetch(t.Context(), broken, newest, "foo", &known)
	require.Same(t, err, again)
	require.Len(t, broken.reads, 1)
	// Another commit and other trusted keys are something else.
	_, err = f.fetch(t.Context(), broken, revision{"d", "d"}, "foo", &known)
	require.Error(t, err)
	_, err = f.fetch(t.Context(), broken, revision{"d", "other keys"}, "foo", &known)
	require.Error(t, err)
	require.Len(t, broken.reads, 3)
	for err, want := range map[error]bool{
		files.Failf(files.LimitExceeded, "large"): true, files.Failf(files.Unreachable, "gone"): false,
		files.Failf(files.NotVerified, "unsigned"): false, errors.New("other"): false,
		files.Failf(files.LimitExceeded, "many references").Because(git.ErrBesides): false,
		files.Failf(files.LimitExceeded, "slow").Because(errSlow):                   false,
	} {
		require.Equal(t, want, isRefusal(err), err)
	}
}

// A new version may refuse what is in force.
func TestARefusedCommitInForceIsNotReadAgain(t *testing.T) {
	t.Parallel()
	repository := repositoryOf("a")
	repository.Spec.Path = "foo"
	source := &given{files: fstest.MapFS{"a.yaml": {Data: []byte(brokenBinding + "- {}\n")}}, tip: "applied"}
	f := &follower{measure: unmeasured}
	ask := func(before answer) answer {
		before.inForce = &committed{commit: "applied", path: "foo"}
		before = f.askSource(t.Context(), source, repository, before, before)
		before.source = sourceOf(repository)
		return before
	}
	known := ask(answer{})
	known = ask(known)
	source.unreachable = files.Failf(files.Unreachable, "gone")
	ask(known)
	source.unreachable = nil
	require.Equal(t, []string{"applied"}, source.reads)
	require.Equal(t, 1, strings.Count(known.problem.message, "breaks a rule"), known.problem.message)
	require.True(t, strings.HasSuffix(known.problem.message, "; its objects are not repaired"), known.problem.message)

	source.tip = "newer"
	known = ask(ask(known))
	require.Equal(t, []string{"applied", "newer", "applied"}, source.reads)
	require.Contains(t, known.problem.message, "; and commit applied, which is in force, cannot be fetched, so it is not "+
		"repaired: ")
	source.unreachable = files.Failf(files.Unreachable, "gone")
	known = ask(known)
	source.unreachable = nil
	ask(known)
	require.Len(t, source.reads, 3, "also not after a time without the server")
}

// What refused a commit may not be the commit, and a user knows.
func TestARequestedSyncReadsARefusedCommitAgain(t *testing.T) {
	t.Parallel()
	repository := repositoryOf("a")
	broken := refused{of: revision{"c", "c"}, err: errors.New("refused")}
	for requested, want := range map[string]refused{"": broken, "now": {}} {
		repository.Annotations = map[string]string{v1alpha1.SyncRequestedAnnotation: requested}
		answered := make(chan struct{})
		f := &follower{
			answer:  answer{source: sourceOf(repository), newest: broken, applied: broken},
			sources: &sources{secrets: absent{}}, isStale: true, notify: func() { close(answered) },
		}
		f.follow(t.Context(), repository, nil)
		<-answered // that the PolicyRepository has no source
		require.Equal(t, want, f.answer.newest)
		require.Equal(t, want, f.answer.applied)
	}
}

// Two large trees do not fit into memory beside each other.
func TestSourcesAreReadOneAfterTheOther(t *testing.T) {
	var first, second slot
	require.NoError(t, first.acquire(t.Context()))
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
	require.Empty(t, slots, "the slot is released")
}

// slow is a source whose commit is not read before it must not be read any longer. err is what is known then, if it is
// not nil.
type slow struct{ *given }

func (s slow) read(ctx context.Context, commit, _ string, wait wait) (*content, error) {
	s.reads = append(s.reads, commit)
	if err := wait(ctx); err != nil {
		return nil, err
	}
	<-ctx.Done()
	return nil, cmp.Or(s.err, ctx.Err())
}

// Others wait while a commit is read, so that has an end.
func TestReadingHasADeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, err := fetch(t.Context(), slow{&given{}}, "c", "foo", unmeasured)
		require.EqualError(t, err,
			"commit c was not read within 5m0s: divide the tree, or give nstpl-sync more CPU")
		require.Empty(t, slots)
	})
}

// The last file may be the one that took long. What is wrong with the commit is known then.
func TestTheDeadlineReplacesNoRefusal(t *testing.T) {
	for _, err := range []error{
		files.RefusedFiles{{Path: "a", Message: "large"}}, files.Failf(files.LimitExceeded, "many files"),
	} {
		synctest.Test(t, func(t *testing.T) {
			_, failed := fetch(t.Context(), slow{&given{err: err}}, "c", "foo", unmeasured)
			require.True(t, isRefusal(failed), failed)
			require.NotErrorIs(t, failed, errSlow)
		})
	}
}

// A commit that takes all the time there is must not have it at each interval.
func TestACommitThatIsReadTooSlowlyIsReadLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := slow{&given{}}
		f := &follower{measure: unmeasured}
		var known refused
		start := time.Now()
		var begun []time.Duration
		for time.Since(start) < 10*time.Hour {
			reads, at := len(source.reads), time.Since(start)
			_, err := f.fetch(t.Context(), source, revision{"c", "c"}, "foo", &known)
			require.ErrorIs(t, err, errSlow)
			if len(source.reads) > reads {
				begun = append(begun, at.Round(time.Minute))
			}
			time.Sleep(time.Minute)
		}
		require.Equal(t, []time.Duration{
			0, 10 * time.Minute, 25 * time.Minute, 50 * time.Minute, 95 * time.Minute, 180 * time.Minute,
			305 * time.Minute, 430 * time.Minute, 555 * time.Minute,
		}, begun)
		reads := len(source.reads)
		_, err := f.fetch(t.Context(), source, revision{"d", "d"}, "foo", &known)
		require.ErrorIs(t, err, errSlow)
		require.Len(t, source.reads, reads+1, "another commit does not wait")
		require.Equal(t, readTimeout, known.pause)
	})
}

// The time in which others are read is part of no phase.
func TestPhasesDoNotMeasureTheWait(t *testing.T) {
	var events []string
	measure := func(phase string) func() {
		events = append(events, phase+" begins")
		return func() { events = append(events, phase+" ends") }
	}
	wait := func(context.Context) error {
		events = append(events, "waits")
		return nil
	}
	_, err := vet(t.Context(), &given{files: fstest.MapFS{}}, "c", "foo", measure, wait)
	require.NoError(t, err)
	require.Equal(t, []string{"fetch begins", "fetch ends", "waits", "vet begins", "vet ends"}, events)
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
	conditionOf(known, nil).set(status, 1)
	require.Contains(t, status.Conditions[0].Message, "… (and 29 more); the commit in force is unknown")
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
