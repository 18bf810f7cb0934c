package repository

import (
	"context"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/files"
)

// existing has PolicyRepositories, whose statuses it does not store.
type existing struct {
	client.Client
	items []v1alpha1.PolicyRepository
}

func (e existing) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*v1alpha1.PolicyRepositoryList).Items = e.items
	return nil
}

func (existing) Status() client.SubResourceWriter { return unstored{} }

type unstored struct{ client.SubResourceWriter }

func (unstored) Patch(context.Context, client.Object, client.Patch, ...client.SubResourcePatchOption) error {
	return nil
}

// repositoryOf returns a PolicyRepository with a UID.
func repositoryOf(uid types.UID) *v1alpha1.PolicyRepository {
	return &v1alpha1.PolicyRepository{ObjectMeta: metav1.ObjectMeta{UID: uid}}
}

// A PolicyRepository leaves nothing in memory and nothing on the volume, also if another one has its name when that is
// noticed, and if an earlier process or a late fetch has left something. What others need stays.
func TestNothingStaysOfADeletedRepository(t *testing.T) {
	t.Parallel()
	const deleted, left, kept = "11111111-2222-3333-4444-55555555555a", "11111111-2222-3333-4444-55555555555b",
		"11111111-2222-3333-4444-55555555555c"
	for name, successor := range map[string]string{"its name is free": "b", "another one has its name": "a"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			before, after := repositoryOf(deleted), repositoryOf(kept)
			before.Name, after.Name = "a", successor
			after.Spec.Suspend = true
			api := existing{items: []v1alpha1.PolicyRepository{*after}}
			r := &Repositories{Client: api, Live: api, sources: &sources{dir: dir}}
			isStopped := false
			f := r.of(before).follower
			f.busy, f.cancel = true, func() { isStopped = true }
			r.scopes.set(before, treeOf(t, "a", "one", map[string]string{"role.yaml": roleFile("a-role")}), &record{})
			role := newObject(rbacv1.SchemeGroupVersion.WithKind("ClusterRole"))
			role.SetName("a-role")
			require.Equal(t, []string{"a"}, r.scopes.concernedBy(nil, role))
			for _, directory := range []string{deleted, left, kept, "other"} {
				require.NoError(t, os.MkdirAll(filepath.Join(dir, directory, "objects"), 0o700))
			}
			for _, name := range []string{successor, "a"} {
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: name}})
				require.NoError(t, err)
			}
			require.True(t, isStopped)
			require.Equal(t, []types.UID{kept}, slices.Collect(maps.Keys(r.followed)))
			require.Empty(t, r.scopes.concernedBy(nil, role))
			entries, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, entries, 2)
			require.Equal(t, kept, entries[0].Name())
			require.Equal(t, "other", entries[1].Name())
		})
	}
}

// While the watch of PolicyRepositories is interrupted, a pass knows all the same that one was suspended, or deleted
// and created again.
func TestAPassReadsThePolicyRepositoryFromTheAPIServer(t *testing.T) {
	t.Parallel()
	before, now := repositoryOf("uid"), repositoryOf("uid")
	before.Name, now.Name = "a", "a"
	now.Spec.Suspend = true
	r := &Repositories{
		Client: existing{items: []v1alpha1.PolicyRepository{*before}},
		Live:   existing{items: []v1alpha1.PolicyRepository{*now}}, sources: &sources{dir: t.TempDir()},
	}
	tree := &vetted{commit: "c"}
	f := r.of(before)
	f.inForce = tree
	f.follower.answer = answer{tree: tree, source: sourceOf(before)}
	_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}})
	require.NoError(t, err)
	require.Empty(t, f.follower.answer, "the PolicyRepository is not followed any more")

	again := *now
	again.UID = "again"
	r.Live = existing{items: []v1alpha1.PolicyRepository{again}}
	_, err = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}})
	require.NoError(t, err)
	require.Equal(t, []types.UID{"again"}, slices.Collect(maps.Keys(r.followed)))
}

// A PolicyRepository that follows an object of Flux now keeps no commits of the Git repository that it followed before.
func TestNoCommitsStayOfTheSourceBefore(t *testing.T) {
	t.Parallel()
	s, repository := &sources{dir: t.TempDir()}, repositoryOf("a")
	repository.Spec.SourceRef = &v1alpha1.ArtifactSource{}
	require.NoError(t, os.Mkdir(s.dirOf("a"), 0o700))
	_, err := s.open(t.Context(), repository, "")
	require.NoError(t, err)
	require.NoDirExists(t, s.dirOf("a"))
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
	known, requested, _ := f.follow(t.Context(), &v1alpha1.PolicyRepository{}, nil)
	require.Empty(t, known)
	require.Equal(t, "c", requested)
	require.True(t, f.isStale, "it is asked when the question that was cancelled has ended")
}

// A commit of the source that a PolicyRepository had before it was changed, perhaps to have commits verified, is not
// applied: neither if the question is not answered yet, nor if the answer was not brought into force.
func TestAChangedSourceIsNotFollowed(t *testing.T) {
	t.Parallel()
	before, after := repositoryOf("a"), repositoryOf("a")
	before.Spec.Path, after.Spec.Path = "before", "after"
	stopped := false
	asking := &follower{busy: true, asked: sourceOf(before), cancel: func() { stopped = true }}
	asking.follow(t.Context(), before, nil)
	require.False(t, stopped)
	asking.follow(t.Context(), after, nil)
	require.True(t, stopped)
	require.True(t, asking.isStale, "it is asked when the question that was cancelled has ended")

	tree := &vetted{commit: "b"}
	for inForce, want := range map[*vetted]*vetted{nil: nil, {commit: "a"}: nil, tree: tree} {
		answered := make(chan struct{})
		f := &follower{
			answer: answer{tree: tree, source: sourceOf(before)}, sources: &sources{secrets: absent{}},
			notify: func() { close(answered) },
		}
		known, _, _ := f.follow(t.Context(), after, inForce)
		require.Same(t, want, known.tree)
		<-answered // that the PolicyRepository has no source
		require.NotNil(t, f.answer.problem)
		require.Equal(t, "after", f.answer.path)
		require.Same(t, want, f.answer.tree)
		known, _, _ = f.follow(t.Context(), after, inForce)
		require.Same(t, want, known.tree)
	}
}

// recorded is an API server that has only the record of a PolicyRepository.
type recorded struct {
	client.Client
	of      *v1alpha1.PolicyRepository
	inForce string
}

func (r recorded) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	record := into.(*corev1.ConfigMap)
	record.OwnerReferences = []metav1.OwnerReference{{UID: r.of.UID, Controller: new(true)}}
	record.Data = map[string]string{inForceKey: r.inForce}
	return nil
}

// After a restart, the status names the commit of the record: the one that it calls vetted may never have been brought
// into force, and the one that it calls applied may have been replaced since.
func TestTheCommitInForceIsThatOfTheRecord(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{"m 2026-01-02T03:04:05Z foo\n": "commit m", "": "commit applied"} {
		repository := repositoryOf("a")
		repository.Name = "a"
		repository.Status.Commits = v1alpha1.RepositoryCommits{Vetted: "vetted", Applied: "applied"}
		recorder := events.NewFakeRecorder(1)
		api := existing{items: []v1alpha1.PolicyRepository{*repository}}
		r := &Repositories{
			Client: api, Live: api, Recorder: recorder, woken: make(chan event.GenericEvent, 1),
			sources: &sources{dir: t.TempDir(), secrets: recorded{of: repository, inForce: line}},
		}
		for range 2 {
			_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "a"}})
			require.NoError(t, err)
			if len(recorder.Events) == 0 {
				<-r.woken // that the PolicyRepository has no source
			}
		}
		require.Contains(t, <-recorder.Events, "; "+want+" stays in force")
	}
}

// After a restart, the objects in force are those of the directory that was followed before. The directory of spec.path
// may have been empty in that commit: to bring it into force would delete everything.
func TestTheTreeInForceIsThatOfThePathBefore(t *testing.T) {
	t.Parallel()
	const line = "m 2026-01-02T03:04:05Z foo\n"
	broken := fstest.MapFS{"a.yaml": {Data: []byte(brokenBinding + "- {}\n")}}
	for name, test := range map[string]struct {
		inForce, tip string
		unreachable  error
		want         []string
	}{
		"the server is down":                   {line, "", files.Failf(files.Unreachable, "gone"), []string{"foo"}},
		"a newer commit breaks a rule":         {line, "n", nil, []string{"bar", "foo"}},
		"the same commit breaks a rule":        {line, "m", nil, []string{"bar", "foo"}},
		"an earlier version recorded no path":  {"m 2026-01-02T03:04:05Z\n", "m", nil, []string{"bar"}},
		"the path was not changed: its commit": {"m 2026-01-02T03:04:05Z bar\n", "m", nil, []string{"bar"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			repository := repositoryOf("a")
			repository.Spec.Path = "bar"
			source := &given{
				files: fstest.MapFS{}, at: map[string]fs.FS{"bar": broken}, tip: test.tip, unreachable: test.unreachable,
			}
			s := &sources{secrets: recorded{of: repository, inForce: test.inForce}}
			inForce, err := s.inForce(t.Context(), repository)
			require.NoError(t, err)
			f := &follower{measure: unmeasured, sources: s}
			known := f.askSource(t.Context(), source, repository, answer{}, answer{path: "bar", inForce: &inForce})
			require.NotNil(t, known.problem)
			require.Equal(t, test.want, source.directories)
			if test.want[len(test.want)-1] == "bar" {
				require.Nil(t, known.tree)
				return
			}
			require.Equal(t, []string{"m", "foo", "foo"}, []string{known.tree.commit, known.tree.path, known.tree.root})
			const end = "; the tree at the path foo of commit m stays in force"
			message := conditionOf(known, nil).message
			require.True(t, strings.HasSuffix(message, end), message)
			again := f.askSource(t.Context(), source, repository, known, answer{path: "bar", tree: known.tree})
			message = conditionOf(again, nil).message
			require.True(t, strings.HasSuffix(message, end), "after the next poll: "+message)
		})
	}
}
