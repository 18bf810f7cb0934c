package inventory

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"nstpl.dev/nstpl/operator/api/v1alpha1"
	"nstpl.dev/nstpl/operator/engine/render"
)

// story is a tree of namespaces in a cluster, with one plan after the other.
type story struct {
	t       *testing.T
	state   State
	options Options
}

// newStory returns a tree that created 20 namespaces, n00 to n19.
func newStory(t *testing.T) *story {
	t.Helper()
	s := &story{t: t, state: stateOf(nil), options: Options{Tree: "foo"}}
	for i := range 20 {
		s.create(fmt.Sprintf("n%02d", i))
	}
	return s
}

// create has the tree create a namespace.
func (s *story) create(name string) {
	s.t.Helper()
	live := stored(s.t, name, namespace(name))
	s.state.Live[render.IDOf(live)], s.state.Created[live.GetUID()] = live, true
}

func (s *story) live(name string) *unstructured.Unstructured {
	return s.state.Live[ID{GroupKind: namespaceKind, Name: name}]
}

func (s *story) gone(name string) { delete(s.state.Live, ID{GroupKind: namespaceKind, Name: name}) }

// without plans a commit that declares all namespaces but some. It returns the names of those that wait, and of those
// that are deleted, which are gone after that.
func (s *story) without(names ...string) string {
	s.t.Helper()
	var declared []*unstructured.Unstructured
	for id := range s.state.Live {
		if !slices.Contains(names, id.Name) {
			declared = append(declared, namespace(id.Name))
		}
	}
	plan := NewPlan(declare(s.t, declared...), s.state, s.options)
	s.state.Deletions = plan.Deletions
	s.options.Confirmed = false
	text := "waits: " + strings.Join(plan.Waiting, " ") + "; deleted:"
	for _, ns := range plan.Deletes {
		text += " " + ns.GetName()
		s.gone(ns.GetName())
	}
	return text
}

// Nothing but a confirmation, or a commit that declares the namespaces again, ends the wait.
func TestADeletionThatNeedsAConfirmationNeedsItUntilAPersonGivesIt(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		act  func(s *story)
		then []string
		want string
	}{
		"nothing": {act: func(*story) {}, want: "waits: n00 n01 n02; deleted:"},
		"two are protected": {
			act: func(s *story) { protected(s.live("n00")); protected(s.live("n01")) }, want: "waits: n02; deleted:",
		},
		"two are being deleted": {
			act: func(s *story) { deleting(s.live("n00")); deleting(s.live("n01")) }, want: "waits: n02; deleted:",
		},
		"two are gone": {
			act: func(s *story) { s.gone("n00"); s.gone("n01") }, want: "waits: n02; deleted:",
		},
		"the tree grows": {
			act: func(s *story) {
				for i := range 20 {
					s.create(fmt.Sprintf("more%02d", i))
				}
			},
			want: "waits: n00 n01 n02; deleted:",
		},
		"the limit is raised": {
			act: func(s *story) {
				s.options.Limit = &v1alpha1.DeletionLimit{Namespaces: new(int32(9)), Percent: new(int32(90))}
			},
			want: "waits: n00 n01 n02; deleted:",
		},
		"two are declared again": {
			act: func(*story) {}, then: []string{"n02"}, want: "waits: n02; deleted:",
		},
		"all are declared again": {act: func(*story) {}, then: []string{}, want: "waits: ; deleted:"},
		"another one is no longer declared": {
			act: func(s *story) { s.gone("n00"); s.gone("n01") }, then: []string{"n02", "n03"},
			want: "waits: n02 n03; deleted:",
		},
		"a person confirms": {
			act: func(s *story) { s.options.Confirmed = true }, want: "waits: ; deleted: n00 n01 n02",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newStory(t)
			const waits = "waits: n00 n01 n02; deleted:"
			require.Equal(t, waits, s.without("n00", "n01", "n02"))
			test.act(s)
			then := []string{"n00", "n01", "n02"}
			if test.then != nil {
				then = test.then
			}
			for range 2 {
				require.Equal(t, test.want, s.without(then...))
				test.want = strings.ReplaceAll(test.want, "deleted: n00 n01 n02", "deleted:")
			}
		})
	}
}

// What was decided holds as well: the limit is about what one commit no longer declares.
func TestADecidedDeletionNeedsNoOtherConfirmation(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	protected(s.live("n00"))
	require.Equal(t, "waits: ; deleted:", s.without("n00"))
	require.Equal(t, "waits: ; deleted: n03", s.without("n00", "n03"))
	s.live("n00").SetAnnotations(nil)
	require.Equal(t, "waits: ; deleted: n00", s.without("n00"))

	// When it is declared again, the next commit without it is another matter.
	protected(s.live("n04"))
	require.Equal(t, "waits: ; deleted:", s.without("n04"))
	require.Equal(t, []types.UID{"n04"}, slices.Collect(maps.Keys(s.state.Deletions.Decided)))
	require.Equal(t, "waits: ; deleted:", s.without())
	require.Empty(t, s.state.Deletions.Decided)
	require.Equal(t, "waits: n05; deleted:", s.without("n04", "n05"))
}

// A confirmation holds for what a person was shown: neither for a namespace that was protected, nor for one that the
// commit lacks only since spec.path was changed.
func TestAConfirmationHoldsForWhatWaited(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	protected(s.live("n00"))
	require.Equal(t, "waits: n01 n02; deleted:", s.without("n00", "n01", "n02"))
	s.options.Confirmed = true
	require.Equal(t, "waits: n03; deleted: n01 n02", s.without("n00", "n01", "n02", "n03"))
	s.options.Confirmed = true
	require.Equal(t, "waits: ; deleted: n03", s.without("n00", "n03"))
	// Those that a person has protected do not count for a later commit.
	require.Equal(t, "waits: ; deleted: n04", s.without("n00", "n04"))
	s.live("n00").SetAnnotations(nil)
	require.Equal(t, "waits: n00; deleted:", s.without("n00"))
	s.options.Confirmed = true
	require.Equal(t, "waits: ; deleted: n00", s.without("n00"))
}

// The protection of a namespace may end after a person was shown the others, and before the confirmation is known.
func TestAConfirmationDeletesNothingThatWasNotShown(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	names := []string{"n00", "n01", "n02"}
	protected(s.live("n00"))
	require.Equal(t, "waits: n01 n02; deleted:", s.without(names...))
	shown := s.state.Deletions.Digest()
	s.live("n00").SetAnnotations(nil)
	s.options.Confirmed = true
	require.Equal(t, "waits: n00; deleted: n01 n02", s.without(names...))
	require.NotEqual(t, shown, s.state.Deletions.Digest())
	require.Equal(t, "waits: n00; deleted:", s.without("n00"))
	s.options.Confirmed = true
	require.Equal(t, "waits: ; deleted: n00", s.without("n00"))
}

// A person may protect a namespace whose deletion was confirmed and not made yet. When the protection ends, the deletion
// needs another confirmation, although the limit would allow this one.
func TestProtectionVoidsAConfirmation(t *testing.T) {
	t.Parallel()
	s := newStory(t)
	names := []string{"n00", "n01", "n02"}
	require.Equal(t, "waits: n00 n01 n02; deleted:", s.without(names...))
	s.options.Confirmed = true
	confirmed := s.live("n00")
	require.Equal(t, "waits: ; deleted: n00 n01 n02", s.without(names...))
	protected(confirmed)
	s.state.Live[render.IDOf(confirmed)] = confirmed // it could not be deleted
	require.Equal(t, "waits: ; deleted:", s.without("n00"))
	confirmed.SetAnnotations(nil)
	require.Equal(t, "waits: n00; deleted:", s.without("n00"))
	s.options.Confirmed = true
	require.Equal(t, "waits: ; deleted: n00", s.without("n00"))

	// It is being deleted already.
	protected(confirmed)
	deleting(confirmed)
	s.state.Live[render.IDOf(confirmed)] = confirmed
	require.Equal(t, "waits: ; deleted:", s.without("n00"))
	require.True(t, s.state.Deletions.Confirmed["n00"])
}

// A namespace that gets another name is created first. That there is another one then confirms nothing.
func TestTheLastNamespaceWaitsAlsoWhenThereIsAnother(t *testing.T) {
	t.Parallel()
	s := &story{t: t, state: stateOf(nil), options: Options{Tree: "foo"}}
	s.create("before")
	require.Equal(t, "waits: before; deleted:", s.without("before"))
	s.create("after")
	require.Equal(t, "waits: before; deleted:", s.without("before"))
}

// The only namespace of a tree is deleted without a confirmation if the commit creates another one, as when it is
// renamed.
func TestTheLastNamespaceWaitsUnlessTheCommitCreatesAnother(t *testing.T) {
	t.Parallel()
	for declared, want := range map[string][]string{"": {"n00"}, "renamed": nil} {
		s := &story{t: t, state: stateOf(nil), options: Options{Tree: "foo"}}
		s.create("n00")
		var tree []*unstructured.Unstructured
		if declared != "" {
			tree = append(tree, namespace(declared))
		}
		plan := NewPlan(declare(t, tree...), s.state, s.options)
		require.Equal(t, want, plan.Waiting, declared)
		require.Equal(t, want == nil, len(plan.Deletes) == 1, declared)
	}
}

// That a commit creates another namespace says nothing about a later commit that does not, if the deletion could not be
// made before: when the other namespace could not be created, for example. A confirmation holds.
func TestTheLastNamespaceWaitsForAnotherCommit(t *testing.T) {
	t.Parallel()
	s := &story{t: t, state: stateOf(nil), options: Options{Tree: "foo"}}
	s.create("n00")
	last := s.live("n00")
	plan := func(declared ...*unstructured.Unstructured) Plan {
		p := NewPlan(declare(t, declared...), s.state, s.options)
		s.state.Deletions = p.Deletions
		return p
	}
	for range 2 {
		require.Len(t, plan(namespace("renamed")).Deletes, 1)
	}
	for range 2 {
		require.Equal(t, []string{"n00"}, plan().Waiting)
	}
	s.options.Confirmed = true
	require.Len(t, plan().Deletes, 1)
	s.options.Confirmed = false
	require.Len(t, plan().Deletes, 1, "it could not be deleted when it was confirmed")

	s.state.Deletions = Deletions{}
	require.Len(t, plan(namespace("renamed")).Deletes, 1)
	deleting(last)
	require.True(t, plan().Deletions.Decided["n00"])
	require.Empty(t, s.state.Deletions.Waiting)
}
