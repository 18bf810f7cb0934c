package objects

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	metadatafake "k8s.io/client-go/metadata/fake"

	"nstpl.dev/nstpl/operator/engine/populate"
)

var wheel = schema.GroupKind{Group: "example.org", Kind: "Wheel"}

// wheels is an API server that may serve a kind, which the operator may be allowed to watch. It counts the requests.
type wheels struct {
	meta.RESTMapper
	authorizationclient.SelfSubjectAccessReviewInterface

	isServed, isAllowed bool
	problem             error
	// mapped is called while the API server is asked for the kind.
	mapped            func()
	mappings, reviews int
	turned            []schema.GroupKind
}

func (w *wheels) RESTMapping(kind schema.GroupKind, _ ...string) (*meta.RESTMapping, error) {
	w.mappings++
	isServed := w.isServed
	if w.mapped != nil {
		w.mapped()
	}
	if w.problem != nil {
		return nil, w.problem
	}
	if !isServed {
		return nil, &meta.NoKindMatchError{GroupKind: kind}
	}
	return &meta.RESTMapping{
		Resource:         schema.GroupVersionResource{Group: kind.Group, Version: "v1", Resource: "wheels"},
		GroupVersionKind: kind.WithVersion("v1"), Scope: meta.RESTScopeNamespace,
	}, nil
}

func (w *wheels) Create(
	_ context.Context, review *authorizationv1.SelfSubjectAccessReview, _ metav1.CreateOptions,
) (*authorizationv1.SelfSubjectAccessReview, error) {
	w.reviews++
	review.Status.Allowed = w.isAllowed
	return review, nil
}

// store returns a store that asks this API server.
func (w *wheels) store(t *testing.T) *Store {
	t.Helper()
	return New(t.Context(), Options{
		Client: metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()), Mapper: w, Reviews: w,
		Turned: func(kind schema.GroupKind) { w.turned = append(w.turned, kind) },
	})
}

// ask asks for the kind as ten templates do that declare it and are authoritative for it.
func ask(t *testing.T, s *Store) (err error) {
	t.Helper()
	for range 10 {
		err = s.Watch(t.Context(), wheel)
		require.Equal(t, err, s.WatchOthers(t.Context(), wheel))
	}
	return err
}

func TestManyTemplatesAskOnceForAKindThatIsUnavailable(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		api     *wheels
		reviews int
		want    string
	}{
		"the cluster does not have it": {&wheels{}, 0, "no matches for kind"},
		"the operator may not watch it": {
			&wheels{isServed: true}, len(verbs), "the operator may not list, watch, create, patch, delete wheels",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := c.api.store(t)
				for round := range 3 {
					require.ErrorContains(t, ask(t, s), c.want)
					require.Equal(t, round+1, c.api.mappings)
					require.Equal(t, c.reviews*(round+1), c.api.reviews)
					require.ErrorContains(t, s.Observe("a", []schema.GroupKind{wheel}, nil).Unreadable[wheel], c.want)
					time.Sleep(AskAgain) // of the clock of synctest, which needs no time
				}
				require.Empty(t, c.api.turned)
			})
		})
	}
}

// Templates that were told that a kind is unavailable hear of it as soon as one of them asked again.
func TestAKindThatBecomesAvailableIsWatched(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change    func(*Store)
		isWatched bool
	}{
		"after some time":                     {func(*Store) { time.Sleep(AskAgain) }, true},
		"when its group changes":              {func(s *Store) { s.KindsChanged(wheel.Group) }, true},
		"before that":                         {func(*Store) { time.Sleep(AskAgain - 1) }, false},
		"not when the kinds of others change": {func(s *Store) { s.KindsChanged("another.org") }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := &wheels{isAllowed: true}
				s := api.store(t)
				require.True(t, meta.IsNoMatchError(ask(t, s)))
				api.isServed = true
				c.change(s)
				if !c.isWatched {
					require.True(t, meta.IsNoMatchError(ask(t, s)))
					return
				}
				require.ErrorIs(t, s.Watch(t.Context(), wheel), ErrPending)
				require.Equal(t, []schema.GroupKind{wheel}, api.turned)
				require.ErrorIs(t, s.Observe("a", []schema.GroupKind{wheel}, nil).Unreadable[wheel], ErrPending)
				require.ErrorIs(t, s.WatchOthers(t.Context(), wheel), ErrPending)
				require.Len(t, api.turned, 1)
			})
		})
	}
}

// An answer that was requested before a change of the kinds may be older than the change.
func TestAnAnswerFromBeforeAChangeOfTheKindsIsNotGivenAgain(t *testing.T) {
	t.Parallel()
	api := &wheels{isAllowed: true}
	s := api.store(t)
	api.mapped = func() {
		api.isServed, api.mapped = true, nil
		s.KindsChanged(wheel.Group)
	}
	require.True(t, meta.IsNoMatchError(s.Watch(t.Context(), wheel)))
	require.ErrorIs(t, s.Watch(t.Context(), wheel), ErrPending)
}

// The objects of a kind that the cluster does not have are known: there are none.
func TestOthersAreUnlistedUntilTheirListHasArrived(t *testing.T) {
	t.Parallel()
	api := &wheels{}
	s := api.store(t)
	ended, end := context.WithCancel(t.Context())
	end() // no watch runs
	s.ctx = ended
	require.NoError(t, s.OthersUnlisted(wheel), "no template needs them")
	require.True(t, meta.IsNoMatchError(s.WatchOthers(t.Context(), wheel)))
	require.NoError(t, s.OthersUnlisted(wheel))
	api.isServed = true
	s.KindsChanged(wheel.Group)
	require.ErrorContains(t, s.WatchOthers(t.Context(), wheel), "the operator may not list")
	require.ErrorContains(t, s.OthersUnlisted(wheel), "the operator may not list")
	api.isAllowed = true
	s.KindsChanged(wheel.Group)
	require.Error(t, s.WatchOthers(t.Context(), wheel))
	require.ErrorContains(t, s.OthersUnlisted(wheel), "the list of wheels.example.org is incomplete")
	require.NoError(t, s.others[wheel].Replace(nil, "1"))
	require.NoError(t, s.OthersUnlisted(wheel))
}

func TestAnAnswerThatFailedIsNotGivenAgain(t *testing.T) {
	t.Parallel()
	api := &wheels{isServed: true, isAllowed: true, problem: errors.New("connection refused")}
	s := api.store(t)
	require.ErrorIs(t, s.Watch(t.Context(), wheel), api.problem)
	api.problem = nil
	require.ErrorIs(t, s.Watch(t.Context(), wheel), ErrPending)
}

// A foreign object matters only where the templates of its namespace consider its kind. What arrived before they did is
// in what the next plan observes.
func TestForeignObjectsQueueTheNamespacesThatConsiderTheirKind(t *testing.T) {
	t.Parallel()
	ended, end := context.WithCancel(t.Context())
	end() // no watch runs
	var queued []string
	s := New(ended, Options{
		Client:  metadatafake.NewSimpleMetadataClient(metadatafake.NewTestScheme()),
		Changed: func(namespace string) { queued = append(queued, namespace) },
	})
	configMaps := configMap.GroupKind()
	others := s.start(&meta.RESTMapping{
		GroupVersionKind: configMap, Resource: schema.GroupVersionResource{Version: "v1", Resource: "configmaps"},
		Scope: meta.RESTScopeNamespace,
	}, s.others, populate.Unlabelled)
	require.NoError(t, others.Replace(nil, "1"))
	version := 1
	events := func(namespace string) (times int) {
		queued = nil
		version += 2
		created, deleted := in(namespace, strconv.Itoa(version)), in(namespace, strconv.Itoa(version+1))
		created.Labels, deleted.Labels = nil, nil
		require.NoError(t, others.Add(created))
		require.NoError(t, others.Delete(deleted))
		for _, name := range queued {
			require.Equal(t, namespace, name)
		}
		return len(queued)
	}
	require.Equal(t, 2, events("a"), "without a plan, it is unknown what matters")
	require.Empty(t, s.Observe("a", nil, []schema.GroupKind{wheel}).Others)
	require.Zero(t, events("a"))
	require.Equal(t, 2, events("b"))
	require.NoError(t, others.Add(in("a", "100")))
	require.Empty(t, s.Observe("a", nil, nil).Others)
	require.Len(t, s.Observe("a", nil, []schema.GroupKind{wheel, configMaps}).Others, 1)
	require.Equal(t, 2, events("a"))
	for _, forget := range []func(string){s.NamespaceEnded, s.Forget} {
		s.Consider("a", nil)
		require.Zero(t, events("a"))
		forget("a")
		require.Equal(t, 2, events("a"))
	}
	s.Consider("a", nil)
	another := s.start(&meta.RESTMapping{
		GroupVersionKind: wheel.WithVersion("v1"), Scope: meta.RESTScopeNamespace,
		Resource: schema.GroupVersionResource{Group: wheel.Group, Version: "v1", Resource: "wheels"},
	}, s.others, populate.Unlabelled)
	require.NoError(t, another.Replace(nil, "1"))
	queued = nil
	require.NoError(t, another.Add(in("a", "200")))
	require.Equal(t, []string{"a"}, queued, "the plan is older than the watch")
}
